// The tokens of the results in their text: how sure the model was of each, and what else could have stood there.

import * as popover from "./popover.js";
import { count, element, number, percent, token as tokenText, visible, words } from "./text.js";

const isKnown = (value) => value != null;

// What can be coloured: its value, the bounds between five levels, and their names.
const ODDS = [[-0.9, -0.6, -0.3, -0.1], ["90% and more", "60–90%", "30–60%", "10–30%", "below 10%"]];
const COLOURS = {
	final: [(token) => -Math.exp(token.logprob_final ?? token.logprob ?? NaN), ...ODDS],
	raw: [(token) => -Math.exp(token.logprob ?? NaN), ...ODDS],
	entropy: [(token) => token.entropy, [0.5, 1, 2, 3], ["below 0.5 nats", "0.5–1", "1–2", "2–3", "above 3"]],
	rank: [(token) => token.rank, [1, 2, 5, 10], ["first choice", "2nd", "3rd to 5th", "6th to 10th", "later"]],
};

// A class from `h0`, as expected, to `h4`, a surprise.
function heat(token, colour) {
	const [of, bounds] = COLOURS[colour];
	const value = of(token);
	return isKnown(value) && !Number.isNaN(value) ? " h" + bounds.filter((bound) => value > bound).length : "";
}

export const legend = (colour) => element("p.row.legend", ...COLOURS[colour][2].map((name, level) => element("span.tok.h" + level, name)));

const textFor = (index, block) => element("div.text", { role: "group", "aria-label": "Tokens of result " + (index + 1) }, block);

export class Heat {
	// The first text goes on from `lead`, the prompt.
	constructor(pane, lead) {
		Object.assign(this, { pane, lead, colour: "final", fixed: lead.childNodes.length });
		this.text = textFor(0, lead);
		this.root = element("div.heat", this.text);
		this.clear([]);
		popover.explains(this.root, ".tok", (span, how) => this.show(span, how));
		popover.walks(this.root, ".tok", (span, key) => {
			const { spans } = this.rows.get(Number(span.dataset.row));
			const index = this.indexOf(span);
			return spans[{ ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: spans.length - 1 }[key]];
		});
	}

	// Begins again: each result goes on from the tokens of `past`.
	clear(past) {
		Object.assign(this, { past, rows: new Map(), upTo: Infinity, differs: -1 });
		for (const [parent, most] of [[this.root, 1], [this.text, 1], [this.lead, this.fixed]]) while (parent.childNodes.length > most) parent.lastChild.remove();
		if (past.length) this.row(0);
	}

	row(index) {
		let row = this.rows.get(index);
		if (!row) {
			const block = index === 0 ? this.lead : element("div.para", element("span.dim", "…"));
			const text = index === 0 ? this.text : textFor(index, block);
			row = { index, tokens: [], spans: [], text, block, notes: element("p.notes"), sum: 0, known: 0 };
			this.rows.set(index, row);
			if (index > 0) this.root.append(text);
			text.after(row.notes);
			for (const token of this.past) this.put(row, token);
		}
		return row;
	}

	add(token) {
		const row = this.row(token.row);
		if (token.logprob !== null) {
			row.sum += token.logprob;
			row.known += 1;
		}
		this.put(row, token);
	}

	put(row, token) {
		const text = token.text === "" ? "<" + token.id + ">" : visible(token.text);
		const span = element("span", { tabIndex: row.index === 0 && !row.spans.length ? 0 : -1, role: "button" }, text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t"));
		const pos = row.spans.length - this.past.length;
		for (const name of ["id", "logprob", "logprob_final", "rank", "entropy"]) if (isKnown(token[name])) span.dataset[name] = token[name];
		Object.assign(span.dataset, { row: row.index, pos });
		const logprob = token.logprob_final ?? token.logprob;
		span.ariaLabel = tokenText(token.text, token.id) + (isKnown(logprob) ? ", " + percent(Math.exp(logprob)) : "") + (token.rank ? ", rank " + token.rank : "") + (pos === -1 ? ", chosen" : "");
		this.tint(span, token);
		row.tokens.push(token);
		row.spans.push(span);
		// A paragraph is a block of its own, so that a new token lays out no other.
		if (!row.block) row.text.append((row.block = element("div.para")));
		row.block.append(span);
		if (token.text.includes("\n")) row.block = null;
	}

	tint(span, token) {
		const pos = Number(span.dataset.pos);
		const past = pos >= 0 ? "" : pos === -1 ? " past chosen" : " past";
		const name = "tok" + heat(token, this.colour) + (token.text === "" ? " bare" : "") + past + (pos > this.upTo ? " later" : "") + (pos === this.differs ? " differs" : "");
		if (span.className !== name) span.className = name;
	}

	// Shows the tokens in another colour, those after a place as still to come, or the one that differs.
	look(how) {
		if (Object.entries(how).every(([name, value]) => this[name] === value)) return;
		Object.assign(this, how);
		for (const { tokens, spans } of this.rows.values()) spans.forEach((span, index) => this.tint(span, tokens[index]));
	}

	finish({ row: index, finish_reason: reason, score }) {
		const row = this.row(index);
		const parts = [count(row.tokens.length - this.past.length, "token"), "ended by " + visible(reason)];
		if (row.known) parts.push("perplexity " + number(Math.exp(-row.sum / row.known)));
		if (isKnown(score)) parts.push("score " + number(score, 3));
		row.notes.textContent = parts.join(" · ");
	}

	spanAt(pos) {
		return this.rows.get(0)?.spans[pos + this.past.length];
	}

	// The place of a token after the prompt.
	indexOf(span) {
		return Number(span.dataset.pos) + this.past.length;
	}

	show(span, how) {
		if (how === "pin") this.pane.opened(span.dataset);
		popover.show(span, () => this.explain(span), how);
	}

	// The ladder: what else could have stood there, before and after the processors.
	explain(span) {
		const row = this.rows.get(Number(span.dataset.row));
		const index = this.indexOf(span);
		const token = row.tokens[index];
		const facts = [["log-probability", token.logprob, 3], ["rank", token.rank, 0], ["entropy in nats", token.entropy, 2]]
			.flatMap(([name, value, digits]) => (isKnown(value) ? name + " " + number(value, digits) : []));
		const head = element("p", element("b", tokenText(token.text, token.id)), element("span.dim", " token " + (index + 1) + ", id " + token.id));
		const about = element("p.dim", facts.join(" · ") || "given, not generated");
		const { list, hasFinal } = this.pane.alternatives(token);
		if (!list.length) return [head, about];
		const columns = ["", "model", ...(hasFinal ? ["after processors"] : [])].map((name) => element("th", { scope: "col" }, name));
		const rungs = list.map((one) => {
			const isOwn = one.id === token.id;
			const go = element("button.small", { onclick: () => this.pane.branchAt(row.index, index, one) }, tokenText(one.text, one.id));
			const rung = element(isOwn ? "tr.own" : "tr", element("th", { scope: "row" }, go), element("td", bar(one.p_raw, "raw"), percent(one.p_raw)));
			if (hasFinal) rung.append(one.cut_by ? element("td.cut", bar(one.p_raw, "gone"), "cut by " + visible(words(one.cut_by))) : element("td", bar(one.p_final, "final"), percent(one.p_final)));
			Object.assign(rung.dataset, { id: one.id, p_raw: one.p_raw, p_final: one.p_final ?? "", cut_by: one.cut_by ?? "" });
			return rung;
		});
		return [head, about, element("table.ladder", element("thead", element("tr", ...columns)), element("tbody", ...rungs))];
	}
}

function bar(p, kind) {
	const made = element("i.bar." + kind);
	made.style.setProperty("--p", String(p ?? 0));
	return made;
}

// The tokens of the results as a heat map: how sure the model was of each.

import * as popover from "./popover.js";
import { count, element, number, percent, token as tokenText, visible } from "./text.js";

const exp = (logprob) => (logprob ?? null) && Math.exp(logprob);
const isKnown = (value) => value != null;

// What can be coloured: its value, the bounds between five levels, and their names.
const ODDS = [[-0.9, -0.6, -0.3, -0.1], ["90% and more", "60–90%", "30–60%", "10–30%", "below 10%"]];
const COLOURS = {
	final: [(token) => -Math.exp(token.logprob_final ?? token.logprob ?? NaN), ...ODDS],
	raw: [(token) => -Math.exp(token.logprob ?? NaN), ...ODDS],
	entropy: [(token) => token.entropy, [0.5, 1, 2, 3], ["below 0.5 nats", "0.5–1", "1–2", "2–3", "above 3"]],
	rank: [(token) => token.rank, [1, 2, 5, 10], ["first choice", "2nd", "3rd to 5th", "6th to 10th", "later"]],
};

// A class from `h0`, as expected, to `h4`, a surprise; none where it is not known.
function heat(token, colour) {
	const [of, bounds] = COLOURS[colour];
	const value = of(token);
	return isKnown(value) && !Number.isNaN(value) ? " h" + bounds.filter((bound) => value > bound).length : "";
}

export const legend = (colour) => element("p.legend", ...COLOURS[colour][2].map((name, level) => element("span.tok.h" + level, name)));

export class Heat {
	// `alternatives` gives what else could have stood at the place of a token, `branch` goes on with another token.
	constructor({ alternatives, branch }) {
		this.alternatives = alternatives;
		this.branch = branch;
		this.rows = new Map();
		this.colour = "final";
		this.root = element("div.heat");
		this.current = null;
		this.waiting = [];
		popover.explains(this.root, ".tok", (span, how) => this.show(span, how), (event, span) => this.key(event, span));
		this.root.addEventListener("focusin", (event) => {
			const span = event.target.closest(".tok");
			if (span) this.walkTo(span, false);
			if (span?.matches(":focus-visible")) this.show(span);
		});
	}

	row(index) {
		let row = this.rows.get(index);
		if (!row) {
			const title = element("h4", { hidden: this.rows.size === 0 }, "Result " + (index + 1));
			const text = element("div.text", { role: "group", "aria-label": "Tokens of result " + (index + 1) });
			const notes = element("div.notes");
			row = { index, tokens: [], spans: [], title, text, notes, sum: 0, known: 0 };
			this.rows.set(index, row);
			this.root.append(title, text, notes);
			if (this.rows.size === 2) this.rows.values().next().value.title.hidden = false;
		}
		return row;
	}

	// Adds a token. It enters the page with the next `flush`.
	add(token) {
		const row = this.row(token.row);
		const text = token.text === "" ? "<" + token.id + ">" : visible(token.text);
		const span = element("span", { tabIndex: -1, role: "button" }, text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t"));
		for (const name of ["row", "pos", "id", "logprob", "logprob_final", "rank", "entropy"]) {
			if (isKnown(token[name])) span.dataset[name] = token[name];
		}
		this.tint(span, token);
		if (token.logprob !== null) {
			row.sum += token.logprob;
			row.known += 1;
		}
		row.tokens.push(token);
		row.spans.push(span);
		if (!this.current) this.walkTo(span, false);
		// A paragraph is a block of its own, so that a new token lays out no other.
		if (!row.block) this.waiting.push([row.text, (row.block = element("div"))]);
		this.waiting.push([row.block, span]);
		if (token.text.includes("\n")) row.block = null;
	}

	tint(span, token) {
		span.className = "tok" + heat(token, this.colour) + (token.text === "" ? " bare" : "");
		const p = exp(token.logprob_final ?? token.logprob);
		span.ariaLabel = tokenText(token.text, token.id) + (p === null ? "" : ", " + percent(p)) + (token.rank ? ", rank " + token.rank : "");
	}

	flush() {
		for (const [parent, child] of this.waiting.splice(0)) parent.append(child);
	}

	setColour(colour) {
		if (colour === this.colour) return;
		this.colour = colour;
		for (const { tokens, spans } of this.rows.values()) spans.forEach((span, index) => this.tint(span, tokens[index]));
	}

	finish({ row: index, finish_reason: reason, score }) {
		const row = this.row(index);
		const mean = row.sum / row.known;
		const parts = [count(row.tokens.length, "token"), "ended by " + visible(reason)];
		if (row.known) parts.push("perplexity " + number(Math.exp(-mean)), "mean log-probability " + number(mean, 3));
		if (isKnown(score)) parts.push("score " + number(score, 3));
		row.notes.replaceChildren(element("p", parts.join(" · ")));
		const unsure = row.tokens.filter((token) => token.logprob !== null).sort((a, b) => a.logprob - b.logprob).slice(0, 5);
		const buttons = unsure.map((token) =>
			element("button.small", { onclick: () => this.walkTo(row.spans[token.pos], true) }, tokenText(token.text, token.id) + " " + percent(exp(token.logprob))));
		if (row.tokens.length > 5) row.notes.append(element("p.unsure", "least sure: ", ...buttons));
	}

	mark(pos) {
		this.rows.get(0)?.spans[pos]?.classList.add("differs");
	}

	tokenOf(span) {
		return this.rows.get(Number(span.dataset.row)).tokens[Number(span.dataset.pos)];
	}

	walkTo(span, focus) {
		if (this.current) this.current.tabIndex = -1;
		this.current = span;
		span.tabIndex = 0;
		if (focus) {
			span.focus();
			this.show(span);
		}
	}

	key(event, span) {
		const { spans } = this.rows.get(Number(span.dataset.row));
		const pos = Number(span.dataset.pos);
		const to = { ArrowRight: pos + 1, ArrowLeft: pos - 1, Home: 0, End: spans.length - 1 }[event.key];
		if (to === undefined) return;
		event.preventDefault();
		if (spans[to]) this.walkTo(spans[to], true);
	}

	show(span, how) {
		popover.show(span, () => this.explain(span), how);
	}

	// What else could have stood there, before and after the processors.
	explain(span) {
		const token = this.tokenOf(span);
		const facts = [];
		if (isKnown(token.logprob)) facts.push("log-probability " + number(token.logprob, 3));
		if (token.rank) facts.push("rank " + token.rank);
		if (isKnown(token.entropy)) facts.push("entropy " + number(token.entropy) + " nats");
		const head = element("p", element("b", tokenText(token.text, token.id)), " token " + (token.pos + 1) + ", id " + token.id);
		const about = element("p.dim", facts.join(" · "));
		const { list, hasFinal, note } = this.alternatives(token);
		if (!list.length) return [head, about];
		const columns = ["", "model", ...(hasFinal ? ["after processors"] : [])].map((name) => element("th", { scope: "col" }, name));
		const rows = list.map((one) => {
			const isOwn = one.id === token.id;
			const go = element("button.small", { title: "Go on from here with this token", onclick: () => this.branch(token, one) }, (isOwn ? "▸ " : "") + tokenText(one.text, one.id));
			const row = element(isOwn ? "tr.own" : "tr", element("th", { scope: "row" }, go), element("td", bar(one.p_raw, "raw"), percent(one.p_raw)));
			if (hasFinal) row.append(one.cut_by ? element("td.cut", "✂ cut by " + visible(one.cut_by)) : element("td", bar(one.p_final, "final"), percent(one.p_final)));
			Object.assign(row.dataset, { id: one.id, p_raw: one.p_raw, p_final: one.p_final ?? "", cut_by: one.cut_by ?? "" });
			return row;
		});
		return [head, about, element("table", element("thead", element("tr", ...columns)), element("tbody", ...rows)), element("p.dim", note)];
	}
}

function bar(p, kind) {
	const made = element("i.bar." + kind);
	made.style.setProperty("--p", String(p ?? 0));
	return made;
}

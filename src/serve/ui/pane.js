// The result of a run or of a trace, as its events come.

import { Drafts } from "./drafts.js";
import { Heat } from "./heat.js";
import { Lanes } from "./lanes.js";
import { count, eachFrame, element, number, visible, words } from "./text.js";

const BUDGET_MS = 10;

const KINDS = ["start", "prompt", "token", "draft", "beam", "finish"];
const must = (holds, why) => {
	if (!holds) throw new Error(why);
};

const TEXTS = ["type", "text", "texts", "source", "state", "cut_by", "finish_reason"];

// Whether the fields of a file's event have the right types.
function fits(value, name) {
	if (Array.isArray(value)) return value.every((one) => one !== null && fits(one, name));
	if (value === null) return true;
	if (typeof value === "object") return Object.entries(value).every(([field, one]) => fits(one, field));
	return typeof value === (TEXTS.includes(name) ? "string" : "number");
}

// What a pane shows: events, which go on from the tokens of `past`; and `end`, if they have none.
export const result = (label, fields) => ({ label, events: [], past: [], ...fields });

const tokensOf = ({ events }) => events.filter((event) => event?.type === "token" && event.row === 0 && typeof event.text === "string");
export const textOf = (result) => tokensOf(result).map(({ text }) => text).join("");

export class Pane {
	// `lead` is the prompt in the text; `calls` are what the page does for its panes.
	constructor(root, lead, calls) {
		Object.assign(this, calls, { root, lead });
		this.redraw = eachFrame(() => this.work());
		this.heat = new Heat(this, lead);
		this.title = element("h2");
		this.status = element("p.status");
		this.pictures = element("div");
		root.append(this.heat.root, element("header.row", this.title, this.status), this.pictures);
		this.show(result(""));
	}

	// Shows a result, which `feed` goes on with.
	show(result) {
		for (const lanes of this.trees?.values() ?? []) lanes.stop();
		Object.assign(this, { result, next: 0, first: null, ghost: null });
		for (const name of ["prompts", "trees", "drafts", "paths"]) this[name] = new Map();
		this.title.textContent = result.label;
		this.status.textContent = "";
		this.heat.clear(result.past);
		this.pictures.replaceChildren();
		this.root.removeAttribute("data-state");
		this.redraw();
	}

	feed(event) {
		this.result.events.push(event);
		this.redraw();
	}

	async drawn() {
		while (this.redraw.waits) await new Promise((resolve) => setTimeout(resolve, 8));
	}

	work() {
		const end = performance.now() + BUDGET_MS;
		const { events } = this.result;
		while (this.next < events.length && performance.now() < end) {
			try {
				this.take(events[this.next++]);
			} catch (error) {
				this.next = events.length;
				this.fail("This is no trace of rsgen: " + error.message);
			}
		}
		if (this.next < events.length) this.redraw();
		else if (this.result.end) this.mark(...this.result.end);
	}

	// Draws an event. That of a file may be anything.
	take(event) {
		if (!KINDS.includes(event?.type)) return;
		if (this.result.isTrace && event.type !== "start") must(fits(event), "a field has a wrong type");
		this[event.type](event);
	}

	start(event) {
		const { strategy, seed } = event;
		this.result.name = this.result.label + visible(words(strategy)) + (seed == null ? "" : ", seed " + seed);
		this.title.textContent = this.result.name;
		this.started(event);
	}

	// The last ids of an address are those that were chosen: they have no alternatives.
	prompt({ prompt, ids, texts }) {
		this.prompts.set(prompt, ids);
		const { past, chosen } = this.result;
		if (past.length || !chosen || prompt !== 0) return;
		this.result.past = ids.slice(-chosen).map((id, index) => ({ id, text: texts.slice(-chosen)[index], logprob: null, top: [], isPast: true }));
		this.heat.clear(this.result.past);
	}

	token(token) {
		must(token.pos === this.heat.row(token.row).tokens.length - this.heat.past.length, "a token is missing");
		this.ghost?.remove();
		this.heat.add(token);
		this.clock(token);
	}

	draft(event) {
		must(event.accepted <= event.proposed.length, "more tokens were accepted than proposed");
		this.picture(this.drafts, event.row, "Drafts", () => new Drafts(() => this.measure(this.pace))).add(event);
	}

	picture(map, index, name, make) {
		if (!map.has(index)) {
			map.set(index, make());
			this.pictures.append(element("section", element("h3", name + (index ? " " + (index + 1) : "")), map.get(index).root));
		}
		return map.get(index);
	}

	beam(event) {
		const { prompt, step, nodes, frontier } = event;
		const lanes = this.picture(this.trees, prompt, "Beams", () => new Lanes(this, prompt));
		const follows = ({ n, parent }) => !lanes.nodes.has(n) && (parent === null ? -1 : lanes.nodes.get(parent)?.step) === step - 1;
		must(step === lanes.columns.length && nodes.every(follows) && frontier.every((n) => nodes.some((node) => node.n === n)), "a step of the beams is missing");
		lanes.add(event);
		this.status.textContent = count(step + 1, "step");
	}

	// The lanes show a step: the text is the best one so far, or what there is of the result by then.
	moved(lanes, step) {
		if (lanes.prompt !== 0) return;
		this.result.wasPlayed ||= lanes.isLast;
		if (this.heat.rows.get(0)?.tokens.length > this.heat.past.length) return this.heat.look({ upTo: lanes.isLast ? Infinity : step });
		this.ghost ??= element("span.ghost");
		this.ghost.textContent = visible(lanes.best.map(({ text }) => text).join(""));
		this.lead.append(this.ghost);
	}

	clock({ t_us: time, row }) {
		if (this.first === null) this.first = { time, tokens: 0, all: 0 };
		if (time === this.first.time) this.first.tokens += 1;
		this.first.all += 1;
		this.first.last = time;
		if (row === 0) this.status.textContent = count(this.first.all, "token");
	}

	// Seconds for each token, the first ones left out: they take the time of the prompt.
	get pace() {
		const { time, last, all, tokens } = this.first ?? {};
		return all > tokens ? (last - time) / 1e6 / (all - tokens) : 0;
	}

	finish(event) {
		for (const row of event.rows) {
			this.paths.set(row.row, row);
			this.heat.finish(row);
		}
		for (const [prompt, lanes] of this.trees) {
			const rows = event.rows.filter((row) => row.prompt === prompt);
			if (rows.length && rows.every((row) => row.path.every((n) => lanes.nodes.has(n)))) lanes.finish(rows);
		}
		for (const { button } of this.drafts.values()) button.hidden = this.result.isTrace || !(this.pace > 0);
		const total = count(this.first?.all ?? 0, "token") + " in " + number(event.timings.total) + " s";
		this.mark("done", total + (this.pace > 0 ? " · " + Math.round(1 / this.pace) + " tokens/s" : ""));
		this.tell("Finished: " + total + ". " + textOf(this.result));
	}

	mark(state, text) {
		this.root.dataset.state = state;
		this.status.textContent = text;
	}

	end(state, text) {
		this.result.end = [state, text];
		this.mark(state, text);
	}

	fail(message) {
		this.end("failed", "✖ " + visible(message));
		this.tell(message);
	}

	// The ids of a prompt without the tokens that were chosen.
	promptOf(prompt) {
		const ids = this.prompts.get(prompt) ?? [];
		return ids.slice(0, ids.length - this.heat.past.length);
	}

	alternatives(token) {
		const { prompt = 0, path = [] } = this.paths.get(token.row) ?? {};
		const lanes = token.isPast ? null : this.trees.get(prompt);
		const list = token.top.length ? token.top : (lanes?.siblings(path[token.pos]) ?? []);
		return { list, hasFinal: list.some((one) => one.p_final !== undefined) };
	}

	// Goes on with another token in the place of one, whose alternatives stay.
	branchAt(row, index, one) {
		const past = this.heat.rows.get(row).tokens.slice(0, index + 1).map((token) => ({ ...token, isPast: true, top: this.alternatives(token).list }));
		const [logprob, logprob_final] = [one.p_raw, one.p_final].map((p) => (p > 0 ? Math.log(p) : null));
		Object.assign(past[index], { id: one.id, text: one.text, rank: null, entropy: null, logprob, logprob_final });
		this.branch(this.promptOf(this.paths.get(row)?.prompt ?? 0), past);
	}

	branchAtNode(lanes, node) {
		const own = lanes.pathTo(node.n).map(({ n, id, text, logprob }) => ({ id, text, logprob, top: lanes.siblings(n), isPast: true }));
		this.branch(this.promptOf(lanes.prompt), [...this.heat.past, ...own]);
	}
}

// The place of the first token at which two results differ, or -1.
export function difference(...sides) {
	const [one, other] = sides.map((side) => tokensOf(side).map(({ id }) => id));
	return Array.from({ length: Math.max(one.length, other.length) }).findIndex((_, pos) => one[pos] !== other[pos]);
}

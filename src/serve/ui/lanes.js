// The beams of a prompt: a column for each step, a lane for each beam, below them what was pruned. They are played once, at
// reading speed. Only the columns that fit are in the page, so its cost does not grow.

import * as popover from "./popover.js";
import { drawn, eachFrame, element, number, percent, token as tokenText } from "./text.js";

// In pixels, as in the style; a lane has two rows, what was pruned one.
const COLUMN = 104;
const GAP = 16;
const HEAD = 18;
const ROW = 20;
const STEP_MS = 350;

export class Lanes {
	nodes = new Map();
	columns = [];
	frontiers = [];
	lanes = 1;
	below = 0;
	results = new Map();
	bestPath = [];
	step = -1;
	timer = 0;
	isDone = false;
	width = 0;
	marks = new Map();

	// Those that were played begin with the last step.
	constructor(pane, prompt) {
		Object.assign(this, { pane, prompt, wasPlayed: pane.result.wasPlayed });
		this.view = element("div.lanes", { role: "tree", "aria-label": "Beams. Arrow keys walk them." });
		this.button = element("button.small.play", { onclick: () => (this.timer ? this.stop() : this.play()) });
		this.scrub = element("input.scrub", { type: "range", min: 0, "aria-label": "Step", oninput: () => this.look(Number(this.scrub.value)) });
		this.place = element("output.dim");
		const key = ["best", "beam", "died", "finished", "pruned"].map((name) => element("span.box." + name, name));
		this.root = element("div", element("div.row.player", this.button, this.scrub, this.place), this.view,
			element("p.row.legend", ...key));
		this.redraw = eachFrame(() => this.draw());
		new ResizeObserver(([{ contentRect }]) => {
			this.width = contentRect.width;
			this.redraw();
		}).observe(this.view);
		popover.explains(this.view, ".node", (mark, how) => this.show(mark, how));
		popover.walks(this.view, ".node", (mark, key) => this.next(this.nodeOf(mark), key));
		if (!this.wasPlayed && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
	}

	// Plays on from the step that is shown; from the first after the last.
	play() {
		if (this.isLast) this.goTo(0);
		this.timer = setInterval(() => {
			if (this.step + 1 < this.columns.length) this.goTo(this.step + 1);
			else if (this.isDone) this.stop();
		}, STEP_MS);
		this.label();
	}

	stop() {
		clearInterval(this.timer);
		this.timer = 0;
		this.label();
	}

	look(step) {
		this.stop();
		this.goTo(step);
	}

	goTo(step) {
		this.step = step;
		this.label();
		this.pane.moved(this, step);
		this.redraw();
	}

	label() {
		this.button.textContent = this.timer ? "❚❚ Pause" : "▶ Play";
		Object.assign(this.scrub, { max: Math.max(0, this.columns.length - 1), value: Math.max(0, this.step) });
		this.place.textContent = "step " + (this.step + 1) + " of " + this.columns.length;
	}

	get isLast() {
		return this.isDone && this.step === this.columns.length - 1;
	}

	// The text that is the best at the step.
	get best() {
		return this.isLast ? this.bestPath.map((n) => this.nodes.get(n)) : this.pathTo(this.frontiers[this.step]?.[0]);
	}

	add({ step, nodes, frontier }) {
		const of = (state) => nodes.filter((node) => node.state === state);
		this.lanes = Math.max(this.lanes, of("alive").length);
		const free = new Set(Array(this.lanes).keys());
		const size = Math.round(this.lanes / new Set(nodes.map((node) => node.group)).size);
		let below = 0;
		// The best first: a beam goes on in the lane of the best of its continuations. A group has lanes of its own.
		const lane = ({ parent, group }) => {
			const own = this.nodes.get(parent)?.row;
			if (free.has(own)) return own;
			return [...free].find((row) => row >= group * size) ?? [...free][0];
		};
		const byPlace = (a, b) => frontier.indexOf(a.n) - frontier.indexOf(b.n);
		this.columns[step] = [...of("alive").sort(byPlace), ...of("finished"), ...of("pruned")].map((given) => {
			const row = given.state === "pruned" ? undefined : lane(given);
			free.delete(row);
			const node = { ...given, step, row, below: row === undefined ? below++ : undefined, live: 0, died: null };
			this.nodes.set(node.n, node);
			const parent = this.nodes.get(node.parent);
			if (parent && row !== undefined) parent.live += 1;
			return node;
		});
		this.below = Math.max(this.below, below);
		for (const n of this.frontiers[step - 1] ?? []) this.settle(this.nodes.get(n), step);
		this.frontiers[step] = frontier;
		if (step === 0 || this.wasPlayed) this.goTo(step);
		else this.label();
	}

	// A beam without continuation has died, and so have its ancestors that have no other.
	settle(node, step) {
		while (node?.state === "alive" && node.live === 0 && node.died === null) {
			node.died = step;
			node = this.nodes.get(node.parent);
			if (node) node.live -= 1;
		}
	}

	pathTo(n) {
		const path = [];
		for (let node = this.nodes.get(n); node; node = this.nodes.get(node.parent)) path.unshift(node);
		return path;
	}

	finish(rows) {
		rows.forEach(({ path }, rank) => path.forEach((n) => this.results.has(n) || this.results.set(n, rank)));
		this.bestPath = rows[0].path;
		this.isDone = true;
		this.goTo(this.step);
	}

	// What a node is at the step: a class, and words.
	fate({ n, state, died }) {
		const rank = this.isLast ? this.results.get(n) : undefined;
		if (state === "finished") return ["finished", rank === undefined ? "finished" : "finished, in result " + (rank + 1)];
		if (state === "pruned") return ["pruned", "pruned at once: others were better"];
		if (rank !== undefined) return ["alive", "in result " + (rank + 1)];
		if (died !== null && died <= this.step) return ["alive died", "died in step " + (died + 1) + ": no continuation was among the best"];
		const place = this.frontiers[this.step].indexOf(n);
		return ["alive", place < 0 ? "a beam" : "beam " + (place + 1)];
	}

	rowOf(node) {
		return node.row === undefined ? 2 * this.lanes + node.below : 2 * node.row;
	}

	draw() {
		const fitting = Math.max(1, Math.floor((this.width - GAP) / COLUMN));
		const first = Math.max(0, this.step + 1 - fitting);
		// The newest first; the others come with the next frames.
		let [start, room] = [this.step + 1, 60];
		while (start > first && room > 0) room -= this.columns[--start].filter(({ n }) => !this.marks.has(n)).length;
		if (start > first) this.redraw();
		const columns = this.columns.slice(start, this.step + 1);
		const best = new Set(this.best);
		const y = (node) => HEAD + (node ? this.rowOf(node) : 0) * ROW + ROW;
		const lines = ["", ""];
		const before = this.marks;
		this.marks = new Map();
		const marks = columns.flatMap((column, index) => column.map((node) => {
			const x = (start - first + index) * COLUMN;
			const [from, to] = [y(this.nodes.get(node.parent)), y(node)];
			if (node.state !== "pruned") lines[best.has(node) ? 1 : 0] += `M${x} ${from}C${x + GAP / 2} ${from} ${x + GAP / 2} ${to} ${x + GAP} ${to}`;
			this.marks.set(node.n, before.get(node.n) ?? this.mark(node));
			return this.bring(node, start - first + index, best.has(node));
		}));
		const numbers = columns.map((_, index) => this.put(element("small.step", String(start + index + 1)), start - first + index, 0));
		const edges = ["edge", "edge best"].map((name, index) => drawn("path", { class: name, d: lines[index] }));
		const focused = document.activeElement;
		this.view.style.setProperty("--rows", 2 * this.lanes + this.below);
		this.view.replaceChildren(drawn("svg", { "aria-hidden": true }, ...edges), ...numbers, ...marks);
		if (marks.includes(focused)) focused.focus();
		else if (marks.length) marks[0].tabIndex = 0;
	}

	nodeOf(mark) {
		return this.nodes.get(Number(mark.dataset.n));
	}

	put(made, column, row) {
		made.style.setProperty("--column", column + 1);
		made.style.setProperty("--row", row + 1);
		return made;
	}

	mark(node) {
		const mark = element("div", { role: "treeitem", "aria-level": node.step + 1 }, element("b", tokenText(node.text, node.id)),
			element("small", percent(Math.exp(node.logprob)), element("span", node.state === "pruned" ? "" : number(node.score))));
		Object.assign(mark.dataset, { n: node.n, parent: node.parent ?? "", step: node.step, state: node.state, id: node.id });
		return mark;
	}

	bring(node, column, isBest) {
		const mark = this.marks.get(node.n);
		const [kind, fate] = this.fate(node);
		mark.className = "node box " + kind + (isBest ? " best" : "");
		mark.tabIndex = -1;
		mark.ariaLabel = tokenText(node.text, node.id) + ", " + percent(Math.exp(node.logprob)) + ", score " + number(node.score) + ", " + fate;
		return this.put(mark, column, this.rowOf(node) + 1);
	}

	next(node, key) {
		const column = [...this.columns[node.step]].sort((a, b) => this.rowOf(a) - this.rowOf(b));
		const place = column.indexOf(node);
		const child = this.columns[node.step + 1]?.find((one) => one.parent === node.n);
		const to = { ArrowLeft: this.nodes.get(node.parent), ArrowRight: child, ArrowUp: column[place - 1], ArrowDown: column[place + 1] }[key];
		if (to && !this.marks.has(to.n)) {
			this.look(to.step);
			this.draw();
		}
		return to && this.marks.get(to.n);
	}

	show(mark, how) {
		const node = this.nodeOf(mark);
		popover.show(mark, () => [
			element("p", mark.ariaLabel),
			element("p.dim", "step " + (node.step + 1) + " · id " + node.id + " · sum of log-probabilities " + number(node.sum, 3)),
			element("button.small", { onclick: () => this.pane.branchAtNode(this, node) }, "Go on from here"),
		], how);
	}

	// What continues the same beam, as alternatives.
	siblings(n) {
		const node = this.nodes.get(n);
		const all = node ? this.columns[node.step].filter((one) => one.parent === node.parent) : [];
		return all.map(({ id, text, logprob }) => ({ id, text, p_raw: Math.exp(logprob) }));
	}
}

// The beams of a prompt as a tree: a column for each step, a lane for each beam, below them what was pruned. Only what can
// be seen is in the page, so its cost does not grow.

import * as popover from "./popover.js";
import { drawn, eachFrame, element, number, percent, short, token as tokenText } from "./text.js";

const COLUMN = 104;
const NODE = 86;
const ROW = 38;
const HEIGHT = 32;
const TOP = 22;
const OVERVIEW = 44;

export class Tree {
	nodes = new Map();
	columns = [];
	lanes = 1;
	below = 0;
	frontier = [];
	best = new Set();
	results = new Map();
	shown = new Map();
	follows = true;
	painted = 0;
	left = 0;
	current = null;

	constructor(branch) {
		this.branch = branch;
		this.edges = drawn("g", { "aria-hidden": true });
		this.drawing = drawn("svg", { role: "tree", "aria-label": "Tree of beams. Arrow keys walk it." }, this.edges);
		this.sheet = element("div.sheet", this.drawing);
		this.view = element("div.tree", { onscroll: () => this.scrolled() }, this.sheet);
		this.overview = element("canvas.overview", { hidden: true, "aria-hidden": true });
		this.note = element("p.dim");
		this.pruned = element("input", { type: "checkbox", checked: true, onchange: () => this.drawAgain() });
		const key = [["best", "best"], ["alive", "beam"], ["died", "died later"], ["finished", "finished"], ["pruned", "pruned"]];
		const legend = key.map(([name, label]) => element("span.key." + name, label));
		this.root = element("div", element("p.legend", ...legend, element("label", this.pruned, " show pruned")), this.view, this.overview, this.note);
		this.redraw = eachFrame(() => this.draw());
		new ResizeObserver(this.redraw).observe(this.view);
		popover.explains(this.drawing, ".node", (mark, how) => this.show(mark, how), (event, mark) => this.key(event, mark));
		const jump = ({ buttons, offsetX }) => {
			if (buttons) this.view.scrollLeft = (offsetX / this.overview.clientWidth) * this.width() - this.view.clientWidth / 2;
		};
		this.overview.onpointerdown = this.overview.onpointermove = jump;
	}

	width() {
		return (this.columns.length + 1) * COLUMN;
	}

	add({ step, nodes, frontier }) {
		const of = (state) => nodes.filter((node) => node.state === state);
		this.lanes = Math.max(this.lanes, of("alive").length);
		const free = new Set(Array(this.lanes).keys());
		const size = Math.round(this.lanes / new Set(nodes.map((node) => node.group)).size);
		let below = this.lanes;
		// The best first: a beam goes on in the lane of the best of its continuations. A group has lanes of its own.
		const lane = ({ parent, group }) => {
			const own = this.nodes.get(parent)?.row;
			if (free.has(own)) return own;
			return [...free].find((row) => row >= group * size) ?? [...free][0];
		};
		const byPlace = (a, b) => frontier.indexOf(a.n) - frontier.indexOf(b.n);
		this.columns[step] = [...of("alive").sort(byPlace), ...of("finished"), ...of("pruned")].map((given) => {
			const isPruned = given.state === "pruned";
			const row = isPruned ? undefined : lane(given);
			free.delete(row);
			const node = { ...given, step, row: row ?? below++, live: 0, died: null };
			this.nodes.set(node.n, node);
			const parent = this.nodes.get(node.parent);
			if (parent && !isPruned) parent.live += 1;
			return node;
		});
		this.below = Math.max(this.below, below - this.lanes);
		for (const n of this.frontier) this.settle(this.nodes.get(n), step);
		this.frontier = frontier;
		if (frontier.length) this.best = this.path(frontier[0]);
		this.redraw();
	}

	// A beam without continuation has died, and so have its ancestors that have no other.
	settle(node, step) {
		while (node?.state === "alive" && node.live === 0 && node.died === null) {
			node.died = step;
			node = this.nodes.get(node.parent);
			if (node) node.live -= 1;
		}
	}

	// A node and its ancestors.
	path(n) {
		const path = new Set();
		for (let node = this.nodes.get(n); node; node = this.nodes.get(node.parent)) path.add(node.n);
		return path;
	}

	// The results: the numbers of the nodes of each, the best first.
	finish(rows) {
		rows.forEach(({ path }, rank) => path.forEach((n) => this.results.has(n) || this.results.set(n, rank)));
		if (rows[0]?.path.length) this.best = new Set(rows[0].path);
		this.frontier = [];
		const pruned = [...this.nodes.values()].filter((node) => node.state === "pruned").length;
		this.note.textContent = this.columns.length + " steps · " + (this.nodes.size - pruned) + " beams and results, " + pruned + " pruned · right in a node: its score";
		this.redraw();
	}

	drawAgain() {
		for (const step of [...this.shown.keys()]) this.remove(step);
		this.redraw();
	}

	scrolled() {
		const { scrollLeft, clientWidth } = this.view;
		// Only somebody who looks back scrolls to the left.
		if (scrollLeft < this.left - 8) this.follows = false;
		else if (scrollLeft + clientWidth > this.width() - COLUMN) this.follows = true;
		this.left = scrollLeft;
		this.redraw();
	}

	elementOf(n) {
		return this.shown.get(this.nodes.get(n)?.step)?.marks.get(n);
	}

	kind(node) {
		if (this.best.has(node.n)) return node.state === "finished" ? "best finished" : "best";
		if (node.state === "alive" && node.died !== null && !this.results.has(node.n)) return "alive died";
		return node.state;
	}

	draw() {
		const width = this.width();
		this.sheet.style.setProperty("width", width + "px");
		// Another size lays all of the drawing out again, so it grows in leaps, and the sheet cuts it.
		const size = [Math.ceil(width / 8000) * 8000, TOP + (this.lanes + (this.pruned.checked ? this.below : 0)) * ROW + 4];
		["width", "height"].forEach((name, index) => {
			if (this.drawing.getAttribute(name) !== String(size[index])) this.drawing.setAttribute(name, size[index]);
		});
		const visible = this.view.clientWidth;
		if (this.follows && width > visible) this.view.scrollLeft = width - visible;
		const left = (this.left = this.view.scrollLeft);
		const first = Math.max(-1, Math.floor(left / COLUMN) - 2);
		const last = Math.min(this.columns.length - 1, Math.ceil((left + visible) / COLUMN));
		for (const step of [...this.shown.keys()]) if (step < first || step > last) this.remove(step);
		// Two new columns a frame: searches may be faster.
		let more = 2;
		for (let step = first; step <= last; step++) if (this.shown.has(step) || more-- > 0) this.update(step);
		if (more < 0) this.redraw();
		this.overview.hidden = width <= visible;
		// A picture of all steps is not needed in every frame.
		const isDue = this.frontier.length === 0 || performance.now() > this.painted + 250;
		if (!this.overview.hidden && isDue) this.drawOverview(left / width, visible / width);
		if (!this.current || !this.elementOf(this.current)) this.walkTo([...this.shown.values()].flatMap(({ marks }) => [...marks.keys()])[0], false);
	}

	remove(step) {
		const { group, edges } = this.shown.get(step);
		if (group.contains(document.activeElement)) return;
		group.remove();
		edges.remove();
		this.shown.delete(step);
	}

	// Puts a column into the page, or brings it up to date.
	update(step) {
		let shown = this.shown.get(step);
		if (!shown) {
			const x = (step + 1) * COLUMN;
			const group = drawn("g", { role: "none" }, drawn("text", { class: "step", x: x + NODE / 2, y: 14 }, String(step + 1 || "prompt")));
			shown = { group, edges: drawn("g"), marks: new Map(), lines: new Map() };
			this.shown.set(step, shown);
			if (step < 0) group.append(drawn("circle", { class: "root", cx: NODE - 6, cy: TOP + HEIGHT / 2, r: 6 }));
			for (const node of this.columns[step] ?? []) {
				if (node.state === "pruned" && !this.pruned.checked) continue;
				const [mark, line] = this.drawNode(node, x);
				shown.marks.set(node.n, mark);
				shown.lines.set(node.n, line);
				shown.edges.append(line);
				group.append(mark);
			}
			this.edges.append(shown.edges);
			this.drawing.append(group);
		}
		for (const [n, mark] of shown.marks) {
			const node = this.nodes.get(n);
			const kind = this.kind(node);
			if (mark.dataset.kind === kind) continue;
			mark.dataset.kind = kind;
			mark.setAttribute("class", "node " + kind);
			shown.lines.get(n).setAttribute("class", "edge " + kind);
			mark.setAttribute("aria-label", tokenText(node.text, node.id) + ", " + percent(Math.exp(node.logprob)) + ", " + this.fate(node));
		}
	}

	drawNode(node, x) {
		const y = TOP + node.row * ROW;
		const parent = this.nodes.get(node.parent);
		const from = TOP + (parent?.row ?? 0) * ROW + HEIGHT / 2;
		const start = x - COLUMN + NODE;
		const middle = y + HEIGHT / 2;
		const bend = (x - start) / 2;
		const line = drawn("path", { d: `M${start} ${from}C${start + bend} ${from} ${x - bend} ${middle} ${x} ${middle}` });
		const mark = drawn("g", { role: "treeitem", tabindex: -1, "aria-level": node.step + 1 },
			drawn("rect", { x, y, width: NODE, height: HEIGHT, rx: 6 }),
			drawn("text", { class: "word", x: x + 7, y: y + 14 }, short(node.text, node.id, 11)),
			drawn("text", { class: "odds", x: x + 7, y: y + 27 }, percent(Math.exp(node.logprob))),
			drawn("text", { class: "odds sum", x: x + NODE - 6, y: y + 27 }, number(node.score)));
		Object.assign(mark.dataset, { n: node.n, parent: node.parent ?? "", step: node.step, state: node.state, id: node.id });
		return [mark, line];
	}

	fate(node) {
		const rank = this.results.get(node.n);
		if (node.state === "finished") return rank === undefined ? "finished" : "finished, in result " + (rank + 1);
		if (node.state === "pruned") return "pruned at once: others were better";
		if (rank !== undefined) return "in result " + (rank + 1);
		if (node.died !== null) return "died in step " + (node.died + 1) + ": no continuation was among the best";
		const place = this.frontier.indexOf(node.n);
		return place < 0 ? "a beam" : "beam " + (place + 1);
	}

	drawOverview(left, share) {
		const { overview } = this;
		const width = overview.clientWidth;
		this.painted = performance.now();
		Object.assign(overview, { width, height: OVERVIEW });
		const pen = overview.getContext("2d");
		const style = getComputedStyle(overview);
		const step = width / (this.columns.length + 1);
		const lane = (OVERVIEW - 8) / this.lanes;
		const y = (row) => 4 + (row + 0.5) * lane;
		for (const isBest of [false, true]) {
			pen.beginPath();
			for (const column of this.columns) {
				for (const node of column ?? []) {
					if (node.row >= this.lanes || this.best.has(node.n) !== isBest) continue;
					pen.moveTo(node.step * step, y(this.nodes.get(node.parent)?.row ?? 0));
					pen.lineTo((node.step + 1) * step, y(node.row));
				}
			}
			pen.lineWidth = isBest ? 2.5 : 1;
			pen.strokeStyle = isBest ? style.color : style.outlineColor;
			pen.stroke();
		}
		pen.strokeStyle = style.color;
		pen.strokeRect(left * width + 1, 1, Math.max(6, share * width - 2), OVERVIEW - 2);
	}

	walkTo(n, focus) {
		this.elementOf(this.current)?.setAttribute("tabindex", -1);
		this.current = n;
		const node = this.nodes.get(n);
		if (!node) return;
		if (focus && !this.elementOf(n)) this.update(node.step);
		const mark = this.elementOf(n);
		mark?.setAttribute("tabindex", 0);
		if (!focus || !mark) return;
		mark.focus({ preventScroll: true });
		const x = (node.step + 1) * COLUMN;
		const { scrollLeft, clientWidth } = this.view;
		if (x < scrollLeft || x + COLUMN > scrollLeft + clientWidth) this.view.scrollLeft = x - clientWidth / 2;
		requestAnimationFrame(() => this.show(mark));
	}

	key(event, mark) {
		const node = this.nodes.get(Number(mark.dataset.n));
		const column = this.columns[node.step].filter((one) => this.pruned.checked || one.state !== "pruned").sort((a, b) => a.row - b.row);
		const place = column.indexOf(node);
		const children = (this.columns[node.step + 1] ?? []).filter((one) => one.parent === node.n);
		const to = { ArrowLeft: this.nodes.get(node.parent), ArrowRight: children[0], ArrowUp: column[place - 1], ArrowDown: column[place + 1] }[event.key];
		if (event.key.startsWith("Arrow")) {
			event.preventDefault();
			if (to) this.walkTo(to.n, true);
		}
	}

	show(mark, how) {
		const node = this.nodes.get(Number(mark.dataset.n));
		popover.show(mark, () => [
			element("p", element("b", tokenText(node.text, node.id)), " step " + (node.step + 1) + ", id " + node.id),
			element("p", this.fate(node)),
			element("p.dim", percent(Math.exp(node.logprob)) + " after its beam · sum of log-probabilities " + number(node.sum, 3) + " · score " + number(node.score, 3)),
			element("button.small", { onclick: () => this.branch(node) }, "Go on from here"),
		], how);
	}

	// The continuations of the beam that a node continues.
	siblings(n) {
		const node = this.nodes.get(n);
		return node ? this.columns[node.step].filter((one) => one.parent === node.parent) : [];
	}

	idsOf(n) {
		return [...this.path(n)].reverse().map((one) => this.nodes.get(one).id);
	}
}

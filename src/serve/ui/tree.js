// The beams of a prompt as a tree that grows to the right: a column for each step, a lane for each beam, and below the
// lanes what was considered and pruned. Only the columns that can be seen are in the page, so its cost does not grow.

import * as popover from "./popover.js";
import { drawn, eachFrame, element, number, percent, short, token as tokenText } from "./text.js";

const COLUMN = 104;
const NODE = 86;
const ROW = 38;
const HEIGHT = 32;
const TOP = 22;
const OVERVIEW = 44;
// The columns that enter the page in a frame at most.
const PACE = 4;

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
	overviewOf = "";
	visible = 0;
	left = 0;
	seen = 0;
	hurriedUntil = 0;
	isDrawn = true;
	current = null;

	constructor(branch) {
		this.branch = branch;
		this.edges = drawn("g");
		this.drawing = drawn("svg", { "aria-hidden": true }, this.edges);
		this.sheet = element("div.sheet", { role: "tree", "aria-label": "Tree of beams. Arrow keys walk it." }, this.drawing);
		this.view = element("div.tree", { onscroll: () => this.scrolled() }, this.sheet);
		this.overview = element("canvas", { height: OVERVIEW });
		this.window = element("span.window");
		this.map = element("div.overview", { hidden: true, "aria-hidden": true }, this.overview, this.window);
		this.note = element("p.dim");
		this.pruned = element("input", { type: "checkbox", checked: true, onchange: () => this.drawAgain() });
		const key = [["best", "best"], ["alive", "beam"], ["died", "died later"], ["finished", "finished"], ["pruned", "pruned"]];
		const legend = key.map(([name, label]) => element("span.key." + name, label));
		this.root = element("div", element("p.legend", ...legend, element("label", this.pruned, " show pruned")), this.view, this.map, this.note);
		this.redraw = eachFrame(() => this.draw());
		// Asking for it in each frame would lay the page out once more.
		new ResizeObserver(() => {
			this.visible = this.view.clientWidth;
			this.redraw();
		}).observe(this.view);
		popover.explains(this.sheet, ".node", (mark, how) => this.show(mark, how), (event, mark) => this.key(event, mark));
		const jump = ({ buttons, offsetX }) => {
			if (buttons) this.view.scrollLeft = (offsetX / this.visible) * this.width() - this.visible / 2;
		};
		this.map.onpointerdown = this.map.onpointermove = jump;
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
		this.changed();
	}

	// A beam without continuation has died, and so have its ancestors that have no other.
	settle(node, step) {
		while (node?.state === "alive" && node.live === 0 && node.died === null) {
			node.died = step;
			node = this.nodes.get(node.parent);
			if (node) node.live -= 1;
		}
	}

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
		this.hurriedUntil = 0;
		this.seen = this.columns.length;
		const pruned = [...this.nodes.values()].filter((node) => node.state === "pruned").length;
		this.note.textContent = this.columns.length + " steps · " + (this.nodes.size - pruned) + " beams and results, " + pruned + " pruned · right in a node: its score";
		this.changed();
	}

	changed() {
		this.isDrawn = false;
		this.redraw();
	}

	drawAgain() {
		for (const step of [...this.shown.keys()]) this.remove(step);
		this.redraw();
	}

	scrolled() {
		const { scrollLeft } = this.view;
		// Only somebody who looks back scrolls to the left.
		if (scrollLeft < this.left - 8) this.follows = false;
		else if (scrollLeft + this.visible > this.width() - COLUMN) this.follows = true;
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
		const { visible } = this;
		const width = this.width();
		const end = Math.max(0, width - visible);
		// A search that is faster than a reader passes by at a pace that a browser draws, and without what it prunes.
		const now = performance.now();
		if (this.follows && this.columns.length > this.seen + 1) this.hurriedUntil = now + 100;
		this.seen = this.columns.length;
		const isHurried = now < this.hurriedUntil;
		const left = !this.follows ? this.left : isHurried ? Math.min(end, this.left + PACE * COLUMN) : end;
		const hasPruned = this.pruned.checked && !isHurried;
		const first = Math.max(-1, Math.floor(left / COLUMN) - 2);
		const last = Math.min(this.columns.length - 1, Math.ceil((left + visible) / COLUMN));
		for (const step of [...this.shown.keys()]) if (step < first || step > last) this.remove(step);
		let more = PACE;
		for (let step = first; step <= last; step++) {
			const isStale = hasPruned && this.shown.get(step)?.hasPruned === false;
			if (this.shown.has(step) && !isStale) this.update(step);
			else if (more-- > 0) {
				if (isStale) this.remove(step);
				this.update(step, hasPruned);
			}
		}
		if (!this.current || !this.elementOf(this.current)) this.walkTo([...this.shown.values()].flatMap(({ marks }) => [...marks.keys()])[0], false);
		this.sheet.style.setProperty("width", width + "px");
		this.sheet.style.setProperty("height", TOP + (this.lanes + (this.pruned.checked ? this.below : 0)) * ROW + 4 + "px");
		this.map.hidden = width <= visible;
		this.window.style.setProperty("left", (left / width) * 100 + "%");
		this.window.style.setProperty("width", (visible / width) * 100 + "%");
		// This lays the page out, so it comes after all changes.
		if (left !== this.left) this.view.scrollLeft = this.left = left;
		this.isDrawn = more >= 0 && !isHurried;
		if (!this.isDrawn) this.redraw();
		this.drawOverview();
	}

	remove(step) {
		const { column, edges } = this.shown.get(step);
		if (column.contains(document.activeElement)) return;
		column.remove();
		edges.remove();
		this.shown.delete(step);
	}

	// Puts a column into the page, or brings it up to date.
	update(step, hasPruned = this.pruned.checked) {
		let shown = this.shown.get(step);
		if (!shown) {
			const column = element("div.column", { role: "none" }, element("span.step", String(step + 1 || "prompt")));
			column.style.setProperty("left", (step + 1) * COLUMN + "px");
			shown = { column, edges: drawn("g"), marks: new Map(), hasPruned };
			this.shown.set(step, shown);
			if (step < 0) column.append(element("span.root"));
			for (const node of this.columns[step] ?? []) {
				if (node.state === "pruned" && !hasPruned) continue;
				const mark = this.drawNode(node);
				shown.marks.set(node.n, mark);
				column.append(mark);
			}
			this.edges.append(shown.edges);
			this.sheet.append(column);
		}
		let hasChanged = false;
		for (const [n, mark] of shown.marks) {
			const node = this.nodes.get(n);
			const kind = this.kind(node);
			if (mark.dataset.kind === kind) continue;
			hasChanged = true;
			mark.dataset.kind = kind;
			mark.className = "node " + kind;
			mark.ariaLabel = tokenText(node.text, node.id) + ", " + percent(Math.exp(node.logprob)) + ", " + this.fate(node);
		}
		if (hasChanged) this.drawEdges(shown);
	}

	drawNode(node) {
		const mark = element("div", { role: "treeitem", tabIndex: node.n === this.current ? 0 : -1, "aria-level": node.step + 1 },
			element("span.word", short(node.text, node.id, 11)),
			element("span.odds", percent(Math.exp(node.logprob))),
			element("span.sum", number(node.score)));
		mark.style.setProperty("top", TOP + node.row * ROW + "px");
		Object.assign(mark.dataset, { n: node.n, parent: node.parent ?? "", step: node.step, state: node.state, id: node.id });
		return mark;
	}

	// One path for each kind of edge into a column.
	drawEdges({ edges, marks }) {
		const paths = new Map();
		for (const [n, mark] of marks) {
			const node = this.nodes.get(n);
			const { kind } = mark.dataset;
			const x = (node.step + 1) * COLUMN;
			const from = TOP + (this.nodes.get(node.parent)?.row ?? 0) * ROW + HEIGHT / 2;
			const to = TOP + node.row * ROW + HEIGHT / 2;
			const start = x - COLUMN + NODE;
			const bend = (x - start) / 2;
			paths.set(kind, (paths.get(kind) ?? "") + `M${start} ${from}C${start + bend} ${from} ${x - bend} ${to} ${x} ${to}`);
		}
		edges.replaceChildren(...[...paths].map(([kind, d]) => drawn("path", { class: "edge " + kind, d })));
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

	// All steps at a glance. They are painted again when they have changed, and not in every frame.
	drawOverview() {
		const state = [this.columns.length, this.visible, this.frontier.length === 0].join();
		const isDue = this.frontier.length === 0 || performance.now() > this.painted + 250;
		if (this.map.hidden || state === this.overviewOf || !isDue) return;
		this.overviewOf = state;
		this.painted = performance.now();
		this.overview.width = this.visible;
		const pen = this.overview.getContext("2d");
		const style = getComputedStyle(this.map);
		const step = this.visible / (this.columns.length + 1);
		const lane = (OVERVIEW - 8) / this.lanes;
		const y = (row) => 4 + (row + 0.5) * lane;
		for (const isBest of [false, true]) {
			pen.beginPath();
			for (const node of this.columns.flat()) {
				if (node.row >= this.lanes || this.best.has(node.n) !== isBest) continue;
				pen.moveTo(node.step * step, y(this.nodes.get(node.parent)?.row ?? 0));
				pen.lineTo((node.step + 1) * step, y(node.row));
			}
			pen.lineWidth = isBest ? 2.5 : 1;
			pen.strokeStyle = isBest ? style.color : style.outlineColor;
			pen.stroke();
		}
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
		const ids = [];
		for (let node = this.nodes.get(n); node; node = this.nodes.get(node.parent)) ids.unshift(node.id);
		return ids;
	}
}

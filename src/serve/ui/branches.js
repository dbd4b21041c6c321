// The runs as a small tree: a branch hangs on the run whose token it replaces.

import { textOf } from "./pane.js";
import { walks } from "./popover.js";
import { element, token as tokenText, visible } from "./text.js";

const MOST = 64;

export class Branches {
	runs = [];
	last = 0;

	constructor(root, visit) {
		Object.assign(this, { visit });
		this.list = element("ul", { role: "tree", "aria-label": "Runs and their branches" });
		walks(this.list, "li", (item, key) => this.next(item, key));
		root.append(element("h2", "Branches"), this.list, element("p.dim", "Another token grows a branch here."));
	}

	get(id) {
		return this.runs.find((run) => run.id === id) ?? null;
	}

	// A new run, or that of the same address. Of too many, the oldest without branches goes.
	add(fields) {
		let run = this.runs.find(({ hash }) => hash === fields.hash);
		if (!run) this.runs.push((run = { id: Date.now() + (this.last += 1) }));
		Object.assign(run, fields);
		if (this.runs.length > MOST) {
			const oldest = this.runs.find((one) => one !== run && !this.runs.some(({ parent }) => parent === one));
			this.runs.splice(this.runs.indexOf(oldest), 1);
		}
		return run;
	}

	ordered(parent = null, depth = 1) {
		return this.runs.filter((run) => run.parent === parent).flatMap((run) => [[run, depth], ...this.ordered(run, depth + 1)]);
	}

	render(current) {
		const hasFocus = this.list.contains(document.activeElement);
		this.items = this.ordered().map(([run, depth]) => {
			const what = run.sides.map(({ label, name = label }) => name).join(" | ");
			const chosen = run.past.at(-1);
			const head = chosen ? tokenText(chosen.text, chosen.id) : visible(run.prompt).trim().slice(-28) || "…";
			const rest = visible(textOf(run.sides[0])).trimStart().slice(0, 60);
			const isCurrent = run === current;
			const item = element("li", { role: "treeitem", tabIndex: isCurrent ? 0 : -1, "aria-level": depth, "aria-selected": isCurrent, onclick: () => this.visit(run),
				onkeydown: (event) => event.key === "Enter" && this.visit(run) }, element("b", head), " " + rest, element("small", what));
			item.style.setProperty("--depth", depth - 1);
			item.run = run;
			return item;
		});
		if (this.items.length && !current) this.items[0].tabIndex = 0;
		this.list.replaceChildren(...this.items);
		if (hasFocus) this.of(current)?.focus();
		this.list.scrollTop = (this.of(current)?.offsetTop ?? 0) - this.list.offsetTop - 99;
	}

	of(run) {
		return this.items.find((item) => item.run === run);
	}

	next(item, key) {
		const index = this.items.indexOf(item);
		const child = this.items.find(({ run }) => run.parent === item.run);
		return { ArrowDown: this.items[index + 1], ArrowUp: this.items[index - 1], ArrowLeft: this.of(item.run.parent), ArrowRight: child, Home: this.items[0], End: this.items.at(-1) }[key];
	}
}

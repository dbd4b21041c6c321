// The controls of a side. Those that its strategy ignores are marked and off.

import { checked, GROUPS, standard, STRATEGIES } from "./settings.js";
import { element, words } from "./text.js";

export class Controls {
	constructor(root, name, changed) {
		Object.assign(this, { changed, parts: [], strategies: {} });
		const id = (field) => name + "-" + field;
		this.strategy = element("select", { id: id("strategy"), onchange: () => {
			this.side.strategy = this.strategy.value;
			this.render();
			changed();
		} }, ...STRATEGIES.map((strategy) => element("option", { value: strategy }, words(strategy))));
		this.about = element("p.dim");
		root.append(element("div.field.wide", element("label", { for: id("strategy") }, "Strategy"), this.strategy), this.about);
		for (const [group, fields] of GROUPS) {
			const mark = element("span.dim");
			const box = element("details", element("summary", group + " ", mark));
			const parts = fields.map((field) => this.control(field, id(field.name)));
			box.append(...parts.map((part) => part.root));
			root.append(box);
			this.parts.push({ box, mark, parts, isRare: ["Results", "Penalties"].includes(group) });
		}
	}

	control(field, id) {
		const { kind, least: min, most: max, step } = field;
		const part = { field, inputs: [] };
		const take = (value) => {
			if (value === undefined || value.length === 0) delete this.side.fields[field.name];
			else this.side.fields[field.name] = value;
			this.render();
			this.changed();
		};
		const on = (input) => ({ onchange: () => take(input().value === "" ? undefined : checked(field, input().value)) });
		let input;
		if (kind === "number") {
			input = element("input", { type: "number", min, max, step, ...on(() => input) });
			if (max <= 200) {
				const slide = element("input", { type: "range", min, max, step, tabIndex: -1, "aria-hidden": true, oninput: () => take(checked(field, slide.value)) });
				part.inputs.push(slide);
			}
		} else if (kind === "check") {
			input = element("input", { type: "checkbox", onchange: () => take(input.checked) });
		} else if (kind === "choice") {
			input = element("select", on(() => input), ...field.choices.map((choice) => element("option", { value: String(choice) }, String(choice))));
		} else {
			input = element("textarea", { rows: 2, spellcheck: false, onchange: () => take(checked(field, input.value.split("\n"))) });
		}
		input.id = id;
		part.inputs.push(input);
		part.reset = element("button.reset", { title: "Back to the default", "aria-label": field.label + ": back to the default", onclick: () => take(undefined) }, "↺");
		part.root = element("div.field", element("label", { for: id }, field.label), ...part.inputs, part.reset);
		return part;
	}

	// Says what each field and each strategy does, as the server describes it.
	explain(properties, strategies) {
		this.strategies = strategies;
		for (const { parts } of this.parts) for (const { field, root } of parts) root.title = properties[field.name]?.description ?? "";
	}

	// Shows a side. `file` has the defaults of the model.
	show(side, file) {
		Object.assign(this, { side, file });
		this.render();
	}

	render() {
		const { side } = this;
		const isOther = this.strategy.dataset.shown !== side.strategy;
		this.strategy.dataset.shown = side.strategy;
		this.strategy.value = side.strategy;
		this.about.textContent = this.strategies[side.strategy] ?? "";
		for (const { box, mark, parts, isRare } of this.parts) {
			let used = 0;
			for (const { field, inputs, reset, root } of parts) {
				const isUsed = field.used(side);
				used += isUsed;
				const own = side.fields[field.name];
				const value = own ?? standard(field, side, this.file) ?? "";
				for (const input of inputs) {
					input.disabled = !isUsed;
					if (field.kind === "check") input.checked = value === true;
					else input.value = Array.isArray(value) ? value.join("\n") : String(value);
				}
				root.classList.toggle("ignored", !isUsed);
				reset.disabled = own === undefined;
			}
			mark.textContent = used ? "" : "– ignored by " + words(side.strategy);
			if (isOther) box.open = used > 0 && !isRare;
		}
	}
}

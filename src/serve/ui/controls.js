// The controls of a side: its strategy, the five fields that say most about it, and all others that it uses.

import { checked, FIELDS, standard, STRATEGIES } from "./settings.js";
import { element, words } from "./text.js";

export class Controls {
	constructor(root, name, changed) {
		Object.assign(this, { changed, strategies: {} });
		const id = (field) => name + "-" + field;
		this.strategy = element("select", { id: id("strategy"), onchange: () => {
			this.side.strategy = this.strategy.value;
			this.render();
			changed();
		} }, ...STRATEGIES.map((strategy) => element("option", { value: strategy }, words(strategy))));
		this.about = element("p.dim");
		this.all = element("input", { type: "checkbox", id: id("all"), onchange: () => this.render() });
		this.parts = [...FIELDS.values()].map((field) => this.control(field, id(field.name)));
		const first = element("div.field", element("label", { for: id("strategy") }, "strategy"), this.strategy);
		root.append(element("div.fields", first, ...this.parts.map((part) => part.root)), element("div.row", element("label.dim", this.all, " All fields"), this.about));
	}

	control(field, id) {
		const { kind, least: min, most: max, step } = field;
		const take = (value) => {
			if (value === undefined || value.length === 0) delete this.side.fields[field.name];
			else this.side.fields[field.name] = value;
			this.render();
			this.changed();
		};
		const onchange = () => take(input.value === "" ? undefined : checked(field, kind === "words" ? input.value.split("\n") : input.value));
		const input =
			kind === "number" ? element("input", { type: "number", min, max, step, onchange })
			: kind === "check" ? element("input", { type: "checkbox", onchange: () => take(input.checked) })
			: kind === "choice" ? element("select", { onchange }, ...field.choices.map((choice) => element("option", { value: String(choice) }, String(choice))))
			: kind === "line" ? element("input", { spellcheck: false, onchange })
			: element("textarea", { rows: 1, placeholder: "one a line", onchange });
		input.id = id;
		return { field, input, root: element("div.field", element("label", { for: id }, words(field.name)), input) };
	}

	// Says what fields and strategies do.
	explain(properties, { strategies = this.strategies, has_assistant: hasAssistant }) {
		this.strategies = strategies;
		this.strategy.querySelector("[value=assisted_decoding]").disabled = !hasAssistant;
		for (const { field, root } of this.parts) root.title = properties[field.name === "force_words" ? "force_words_ids" : field.name]?.description ?? "";
	}

	// Shows a side. `file` has the defaults of the model.
	show(side, file) {
		Object.assign(this, { side, file });
		this.render();
	}

	render() {
		const { side } = this;
		this.strategy.value = side.strategy;
		this.about.textContent = (this.strategies[side.strategy] ?? "").replaceAll("`", "");
		let room = 5;
		for (const { field, input, root } of this.parts) {
			const value = side.fields[field.name] ?? standard(field, side, this.file) ?? "";
			input.disabled = !field.used(side);
			root.hidden = input.disabled || (room-- <= 0 && !this.all.checked);
			if (field.kind === "check") input.checked = value === true;
			else input.value = Array.isArray(value) ? value.join("\n") : String(value);
		}
	}
}

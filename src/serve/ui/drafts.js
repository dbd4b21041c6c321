// Drafts: a line for each round, and the gain.

import { count, element, number, percent, token as tokenText, visible, words } from "./text.js";

export class Drafts {
	totals = { rounds: 0, proposed: 0, accepted: 0, tokens: 0 };
	head = element("p");
	list = element("ol.rounds");

	constructor(measure) {
		const legend = [element("span.yes", "accepted"), element("s.no", "rejected"), element("span.dim", "odds in draft → model"), element("b.next", "the model’s own token")];
		this.button = element("button.small", { onclick: measure, hidden: true }, "Measure the gain");
		this.root = element("div", this.head, this.button, element("p.row.legend", ...legend), this.list);
	}

	add({ round, source, proposed, accepted, next }) {
		const { totals } = this;
		const rounds = (totals.rounds += 1);
		totals.proposed += proposed.length;
		totals.accepted += accepted;
		totals.tokens += accepted + (next ? 1 : 0);
		const tokens = proposed.map((one, index) => {
			const label = tokenText(one.text, one.id);
			if (index < accepted) return element("span.yes", label);
			const before = one.p_draft === null ? "" : percent(one.p_draft) + "→";
			const odds = one.p_target === null ? "" : " " + before + percent(one.p_target);
			return element("span.no", element("s", label), odds && element("small", odds));
		});
		if (next) tokens.push(element("b.next", tokenText(next.text, next.id)));
		const marks = "■".repeat(accepted) + "□".repeat(proposed.length - accepted) + " ";
		const line = element("li", element("span.dim", proposed.length ? marks + accepted + " of " + proposed.length + " " : "no draft "), ...tokens);
		Object.assign(line.dataset, { round, proposed: proposed.length, accepted, next: next ? next.id : "" });
		this.list.append(line);
		this.head.textContent = count(totals.proposed, "token") + " of " + visible(words(source)) + " checked, " + totals.accepted + " accepted (" + percent(totals.accepted / Math.max(1, totals.proposed)) + ") · " + number(totals.tokens / rounds) + " tokens a pass in " + rounds + " passes";
	}
}

// Drafts: a line for each round, and the gain.

import { count, element, number, percent, token as tokenText } from "./text.js";

const SOURCES = { assistant_model: "a draft model", prompt_lookup: "the prompt and the text so far", early_exit: "the model’s own first layers" };

export class Drafts {
	// `measure` runs the same without drafts, and gives its seconds for each token.
	constructor(measure) {
		this.totals = { rounds: 0, proposed: 0, accepted: 0, tokens: 0 };
		this.head = element("p.totals");
		this.gain = element("p");
		this.list = element("ol.rounds");
		this.waiting = [];
		this.measure = measure;
		const key = [["yes", "accepted"], ["no", "rejected (odds in draft → model)"], ["next", "the model’s own token"]];
		const legend = element("p.legend", ...key.map(([name, label]) => element("span." + name, label)));
		this.root = element("div", this.head, this.gain, legend, this.list);
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
		const line = element("li", element("span.dim.marks", proposed.length ? marks + accepted + " of " + proposed.length : "no draft"), ...tokens);
		Object.assign(line.dataset, { round, proposed: proposed.length, accepted, next: next ? next.id : "" });
		this.waiting.push(line);
		this.head.textContent = count(totals.proposed, "token") + " of " + (SOURCES[source] ?? source) + " checked, " + totals.accepted + " accepted (" + percent(totals.accepted / Math.max(1, totals.proposed)) + ") · " + number(totals.tokens / rounds) + " tokens a pass in " + count(rounds, "pass", "passes");
	}

	flush() {
		this.list.append(...this.waiting.splice(0));
	}

	// Offers to measure the gain: `pace` is the seconds for each token.
	finish(pace) {
		const button = element("button.small", {
			onclick: async () => {
				button.disabled = true;
				button.textContent = "Measuring without drafts…";
				try {
					const plain = await this.measure();
					const rates = [plain, pace].map((seconds) => Math.round(1 / seconds));
					this.gain.textContent = "Measured gain: " + number(plain / pace) + " times as fast (" + rates.join(" → ") + " tokens/s)";
				} catch (error) {
					this.gain.textContent = error.message;
				}
			},
		}, "Measure the gain");
		if (this.measure && pace > 0) this.gain.replaceChildren(button);
	}
}

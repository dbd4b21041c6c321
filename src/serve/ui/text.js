// Text and numbers as people read them, and elements. Foreign text is `textContent` alone.

// Controls but tab and line feed, and what is invisible or reorders other characters.
const HIDDEN = /[^\P{C}\t\n]|[\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

const hex = (char) => "<U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + ">";

// Text whose hidden characters are written out.
export const visible = (text) => text.replace(HIDDEN, hex);

// A token by itself: its spaces are visible, too.
export function token(text, id) {
	if (text === "") return "<" + id + ">";
	return visible(text).replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

export function percent(p) {
	if (p == null || Number.isNaN(p)) return "–";
	const value = p * 100;
	if (value >= 99.95) return "100%";
	if (value >= 10) return value.toFixed(value >= 99 ? 1 : 0) + "%";
	if (value >= 0.1) return value.toFixed(1) + "%";
	return value > 0 ? "<0.1%" : "0%";
}

export const number = (value, digits = 2) =>
	value == null ? "–" : value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");

export const count = (n, one) => n.toLocaleString("en") + " " + one + (n === 1 ? "" : "s");

// `beam_search` or `top_p` as a reader sees it.
export const words = (name) => name.replaceAll("_", " ").replace("dola", "DoLa").replace(/ (.)$/, "-$1");

// An element, such as `p.dim`. Properties with `on…` are listeners, with a dash attributes.
export function element(name, ...rest) {
	const [tag, ...classes] = name.split(".");
	const made = document.createElement(tag);
	made.classList.add(...classes);
	const properties = rest[0]?.constructor === Object ? rest.shift() : {};
	for (const [name, value] of Object.entries(properties)) {
		if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
		else if (/-|^(role|for|scope)$/.test(name)) made.setAttribute(name, value);
		else made[name] = value;
	}
	made.append(...rest);
	return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawn(tag, attributes, ...children) {
	const made = document.createElementNS(SVG, tag);
	for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
	made.append(...children);
	return made;
}

// Calls `draw` once in the next frame; until then it `waits`.
export function eachFrame(draw) {
	const ask = () => {
		if (ask.waits) return;
		ask.waits = true;
		// A page that nobody sees has no frames.
		const later = document.hidden ? setTimeout : requestAnimationFrame;
		later(() => {
			ask.waits = false;
			draw();
		});
	};
	return ask;
}

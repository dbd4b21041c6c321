// The one popover of the page, which explains what the pointer or the keyboard is at; and walking by keys.

import { element } from "./text.js";

const box = element("div", { id: "popover", role: "dialog", "aria-label": "Explanation", hidden: true });
document.body.append(box);

let anchor = null;
let pinned = false;

// Makes the parts that match one stop of the Tab key: `next` gives where a key leads from a part.
export function walks(root, selector, next) {
	root.addEventListener("focusin", ({ target }) => {
		if (!target.matches(selector)) return;
		for (const one of root.querySelectorAll(selector + '[tabindex="0"]')) one.tabIndex = -1;
		target.tabIndex = 0;
	});
	root.addEventListener("keydown", (event) => {
		const part = event.target.closest(selector);
		const to = part && next(part, event.key);
		if (!to) return;
		event.preventDefault();
		to.focus({ focusVisible: true });
	});
}

// Makes `show` explain the parts that match: while the pointer or the keyboard is there, or, pinned by a click or Enter,
// until it is closed.
export function explains(root, selector, show) {
	const on = (kind, act) => root.addEventListener(kind, (event) => {
		const part = event.target.closest(selector);
		if (part) act(part, event);
	});
	on("pointerover", (part, event) => event.pointerType === "mouse" && show(part));
	on("pointerout", () => pinned || hide());
	on("focusin", (part) => part.matches(":focus-visible") && show(part));
	on("click", (part) => show(part, "pin"));
	on("keydown", (part, event) => {
		if (!["Enter", " "].includes(event.key)) return;
		event.preventDefault();
		show(part, "pin");
		box.querySelector("button")?.focus();
	});
}

// Shows `content` beside an element; `how` is "pin" if it has to stay until it is closed.
export function show(target, content, how) {
	const pin = how === "pin";
	if (pinned && !pin) return;
	if (pin && pinned && anchor === target && !box.hidden) return hide();
	anchor?.removeAttribute("aria-expanded");
	anchor = target;
	anchor.ariaExpanded = true;
	pinned = pin;
	box.replaceChildren(...content());
	box.hidden = false;
	box.style.setProperty("pointer-events", pin ? "auto" : "none");
	place();
}

function place() {
	const at = anchor.getBoundingClientRect();
	const [width, height] = [document.documentElement.clientWidth - box.offsetWidth - 8, innerHeight - box.offsetHeight - 8];
	const top = at.bottom > height && at.top > box.offsetHeight ? at.top - box.offsetHeight - 6 : at.bottom + 6;
	box.style.setProperty("left", Math.max(8, Math.min(at.left, width)) + "px");
	box.style.setProperty("top", Math.max(8, Math.min(top, height)) + "px");
}

// Closes it, and gives the focus back to what it explained.
export function hide() {
	if (box.hidden) return;
	if (box.contains(document.activeElement)) anchor.focus();
	anchor.removeAttribute("aria-expanded");
	box.hidden = true;
	pinned = false;
	anchor = null;
}

walks(box, "button", (button, key) => {
	const buttons = [...box.querySelectorAll("button")];
	const step = { ArrowDown: 1, ArrowUp: -1 }[key];
	return step && buttons[(buttons.indexOf(button) + step + buttons.length) % buttons.length];
});
addEventListener("keydown", (event) => {
	if (event.key !== "Escape" || box.hidden) return;
	event.stopImmediatePropagation();
	hide();
}, true);
addEventListener("pointerdown", (event) => {
	if (!box.hidden && !box.contains(event.target) && !anchor?.contains(event.target)) hide();
}, true);
addEventListener("scroll", (event) => {
	if (!box.hidden && !box.contains(event.target)) (pinned && anchor.isConnected ? place : hide)();
}, true);

// A request as a program that makes the same one.

import { FIELDS, fieldsOf, toRequest } from "./settings.js";

const BUNDLED = "story-3m";

// A value as Python writes it: JSON's texts and lists are Python's.
const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));

// A text as Rust writes it: hidden characters, which `visible` would show, by their numbers.
const rustText = (text) => '"' + text.replace(/["\\\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => ('"\\'.includes(char) ? "\\" + char : "\\u{" + char.codePointAt(0).toString(16) + "}")) + '"';

const list = (ids) => "vec![" + ids.map((id) => "TokenId(" + id + ")").join(", ") + "]";

// The value of a field as its builder takes it, and the types that it names.
function rust(name, value) {
	const capital = (text) => text[0].toUpperCase() + text.slice(1);
	const choices = { early_stopping: "EarlyStopping", dola_layers: "DolaLayers", num_assistant_tokens_schedule: "AssistantTokensSchedule" };
	if (Object.hasOwn(choices, name)) return [choices[name] + "::" + capital(String(value)), choices[name]];
	if (name === "force_words_ids") return ["vec![" + value.map((ids) => "ForcedWord::Phrase(" + list(ids) + ")").join(", ") + "]", "ForcedWord"];
	if (name === "stop_strings") return ["vec![" + value.map((text) => rustText(text) + ".to_owned()").join(", ") + "]"];
	if (name === "seed") return [value + "_u64"];
	return [Number.isInteger(value) && !Number.isInteger(FIELDS.get(name).step) ? value.toFixed(1) : String(value)];
}

// In Python: the library, which needs no server.
export function asPython(state, side, { model, tokens }) {
	const fields = fieldsOf(side, state.seed, tokens);
	const body = toRequest(state, side, { tokens });
	const options = model === BUNDLED ? [] : [python(model)];
	if (side.strategy === "assisted_decoding") options.push('assistant="draft"');
	const lines = ["import rsgen", "", "gen = rsgen.Generator(" + options.join(", ") + ")"];
	if (body.messages) {
		lines.push("messages = " + python(body.messages));
		lines.push("prompt = gen.tokenizer.apply_chat_template(messages, add_generation_prompt=True)");
	}
	lines.push("out = gen." + side.strategy + "(");
	lines.push("    " + (body.messages ? "prompt" : python(body.prompt)) + ",");
	for (const [name, value] of Object.entries(fields)) lines.push("    " + name + "=" + python(value) + ",");
	lines.push(")", fields.num_return_sequences > 1 ? "print(out.texts)" : "print(out.text)");
	return lines.join("\n") + "\n";
}

export function asRust(state, side, { model, tokens }) {
	const body = toRequest(state, side, { tokens });
	const names = ["GenerationConfig", "Generator"];
	const types = [];
	const builders = Object.entries(fieldsOf(side, state.seed, tokens)).map(([name, value]) => {
		const [written, type] = rust(name, value);
		if (type) types.push(type);
		return "        ." + name + "(" + written + ")";
	});
	let opened = model === BUNDLED ? "Generator::bundled()?" : "Generator::open(" + rustText(model) + ")?";
	const setup = [];
	if (side.strategy === "assisted_decoding") {
		names.push("GeneratorOptions");
		setup.push("    let options = GeneratorOptions { assistant: Some(Assistant::Bundled), ..GeneratorOptions::default() };");
		opened = model === BUNDLED ? "Generator::bundled_with(&options)?" : "Generator::open_with(" + rustText(model) + ", &options)?";
	}
	setup.push("    let generator = " + opened + ";");
	let prompt = rustText(state.prompt);
	if (state.ids) prompt = list(state.ids);
	if (body.messages) {
		names.push("ChatOptions", "Message");
		const messages = body.messages.map(({ role, content }) => "        Message::" + role + "(" + rustText(content) + "),");
		setup.push("    let messages = [", ...messages, "    ];");
		prompt = "generator.chat_prompt(&messages, &ChatOptions::default())?";
	}
	const lines = [...setup, "    let config = GenerationConfig::new()", ...builders];
	lines[lines.length - 1] += ";";
	lines.push("    let output = generator." + side.strategy + "(" + prompt + ", &config)?;");
	lines.push('    output.texts().for_each(|text| println!("{text}"));', "    Ok(())", "}");
	const text = lines.join("\n");
	if (text.includes("TokenId(")) names.push("TokenId");
	const uses = ["use rsgen::{" + names.sort().join(", ") + "};"];
	if (types.length) uses.unshift("use rsgen::generation::{" + types.sort().join(", ") + "};");
	if (side.strategy === "assisted_decoding") uses.unshift("use rsgen::generator::Assistant;");
	return uses.join("\n") + "\n\nfn main() -> rsgen::Result<()> {\n" + text + "\n";
}

export function asCurl(state, side, { base, tokens, hasKey, hasAssistant }) {
	const body = JSON.stringify(toRequest(state, side, { tokens, hasAssistant })).replaceAll("'", "'\\''");
	const key = hasKey ? ' -H "authorization: Bearer $RSGEN_API_KEY"' : "";
	return "curl -N '" + base + "rsgen/v1/generate'" + key + " --json '" + body + "'\n";
}

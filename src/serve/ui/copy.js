// A request as a program that makes the same one.

import { FIELDS, fieldsOf, toRequest } from "./settings.js";

const BUNDLED = "story-3m";
const DRAFT = "path/to/draft";

// A value as Python writes it: JSON's texts and lists are Python's.
const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));

// A text as Rust writes it: hidden characters, which `visible` would show, by their numbers.
const rustText = (text) => '"' + text.replace(/["\\\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => ('"\\'.includes(char) ? "\\" + char : "\\u{" + char.codePointAt(0).toString(16) + "}")) + '"';

const list = (ids) => "[" + ids.join(", ") + "].map(rsgen::TokenId).to_vec()";

const CHOICES = { early_stopping: "EarlyStopping", dola_layers: "DolaLayers", num_assistant_tokens_schedule: "AssistantTokensSchedule" };

// The value of a field as its builder takes it.
function rust(name, value) {
	const text = String(value);
	const each = (write) => "vec![" + value.map(write).join(", ") + "]";
	if (Object.hasOwn(CHOICES, name)) return "rsgen::generation::" + CHOICES[name] + "::" + text[0].toUpperCase() + text.slice(1);
	if (name === "force_words_ids") return each((ids) => "rsgen::generation::ForcedWord::Phrase(" + list(ids) + ")");
	if (name === "stop_strings") return each((one) => rustText(one) + ".to_owned()");
	if (name === "seed") return text + "_u64";
	return Number.isInteger(value) && !Number.isInteger(FIELDS.get(name).step) ? value.toFixed(1) : text;
}

// In Python: the library, which needs no server.
export function asPython(state, side, { model, tokens }) {
	const fields = fieldsOf(side, state.seed, tokens);
	const body = toRequest(state, side, { tokens });
	const options = model === BUNDLED ? [] : [python(model)];
	if (side.strategy === "assisted_decoding") options.push("assistant=" + python(model === BUNDLED ? "draft" : DRAFT));
	const lines = ["import rsgen", "", "gen = rsgen.Generator(" + options.join(", ") + ")"];
	if (body.messages) {
		lines.push("messages = " + python(body.messages));
		lines.push("prompt = gen.apply_chat_template(messages, add_generation_prompt=True)");
	}
	lines.push("out = gen." + side.strategy + "(");
	lines.push("    " + (body.messages ? "prompt" : python(body.prompt)) + ",");
	for (const [name, value] of Object.entries(fields)) lines.push("    " + name + "=" + python(value) + ",");
	lines.push(")", fields.num_return_sequences > 1 ? "print(out.texts)" : "print(out.text)");
	return lines.join("\n") + "\n";
}

export function asRust(state, side, { model, tokens }) {
	const { messages } = toRequest(state, side, { tokens });
	const lines = ["use rsgen::{GenerationConfig, Generator};", "", "fn main() -> rsgen::Result<()> {"];
	const isAssisted = side.strategy === "assisted_decoding";
	if (isAssisted) {
		lines.push("    let assistant = Some(" + (model === BUNDLED ? "rsgen::generator::Assistant::Bundled" : python(DRAFT) + ".into()") + ");");
		lines.push("    let options = rsgen::GeneratorOptions { assistant, ..rsgen::GeneratorOptions::default() };");
	}
	const given = [...(model === BUNDLED ? [] : [rustText(model)]), ...(isAssisted ? ["&options"] : [])];
	lines.push("    let generator = Generator::" + (model === BUNDLED ? "bundled" : "open") + (isAssisted ? "_with(" : "(") + given.join(", ") + ")?;");
	let prompt = state.ids ? list(state.ids) : rustText(state.prompt);
	if (messages) {
		const each = messages.map(({ role, content }) => "        rsgen::Message::" + role + "(" + rustText(content) + "),");
		lines.push("    let messages = [", ...each, "    ];");
		prompt = "generator.chat_prompt(&messages, &rsgen::ChatOptions::default())?";
	}
	lines.push("    let config = GenerationConfig::new()");
	for (const [name, value] of Object.entries(fieldsOf(side, state.seed, tokens))) lines.push("        ." + name + "(" + rust(name, value) + ")");
	lines[lines.length - 1] += ";";
	lines.push("    let output = generator." + side.strategy + "(" + prompt + ", &config)?;");
	lines.push('    output.texts().for_each(|text| println!("{text}"));', "    Ok(())", "}");
	return lines.join("\n") + "\n";
}

export function asCurl(state, side, { base, tokens, hasKey, hasAssistant }) {
	const body = JSON.stringify(toRequest(state, side, { tokens, hasAssistant })).replaceAll("'", "'\\''");
	const key = hasKey ? ' -H "authorization: Bearer $RSGEN_API_KEY"' : "";
	return "curl -N '" + base + "rsgen/v1/generate'" + key + " --json '" + body + "'\n";
}

// A request as a program that makes the same one.

import { FIELDS, fieldsOf, toRequest } from "./settings.js";

// A value as Python writes it: JSON's texts and lists are Python's.
const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));

// A text as Rust writes it: hidden characters, which `visible` would show, by their numbers.
const rustText = (text) => '"' + text.replace(/["\\\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => ('"\\'.includes(char) ? "\\" + char : "\\u{" + char.codePointAt(0).toString(16) + "}")) + '"';

// The options that open the model again. Without its assistant, where the request does without: drafts draw, too.
const optionsOf = (side, opened) => Object.entries(opened).filter(([name, value]) => value !== null && (name !== "assistant" || side.strategy === "assisted_decoding"));

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
export function asPython(state, side, { opened, tokens }) {
	const fields = fieldsOf(side, state.seed, tokens);
	const body = toRequest(state, side, { tokens });
	const options = optionsOf(side, opened).map(([name, value]) => (name === "model" ? "" : name + "=") + python(value));
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

// An option as its builder takes it.
function rustOption([name, value]) {
	if (name === "generation_config") return "ignore_generation_config(true)";
	let text = String(value);
	if (typeof value === "string") {
		text = rustText(value);
		if (name === "assistant") text = "rsgen::generator::Assistant::" + (value === "draft" ? "Bundled" : "from(" + text + ")");
		else if (name.endsWith("dtype")) text = "rsgen::generator::choices::" + name.toUpperCase() + ".parse(" + text + ")?";
		else text = name === "cache_dir" ? text + ".into()" : text + ".to_owned()";
	}
	return name + "(" + text + ")";
}

export function asRust(state, side, { opened, tokens }) {
	const { messages } = toRequest(state, side, { tokens });
	const lines = ["use rsgen::{GenerationConfig, Generator};", "", "fn main() -> rsgen::Result<()> {"];
	const options = optionsOf(side, opened);
	const model = options[0]?.[0] === "model" ? options.shift()[1] : null;
	if (options.length) {
		lines.push("    let options = rsgen::GeneratorOptions::new()", ...options.map((option) => "        ." + rustOption(option)));
		lines[lines.length - 1] += ";";
	}
	const given = [...(model === null ? [] : [rustText(model)]), ...(options.length ? ["&options"] : [])];
	lines.push("    let generator = Generator::" + (model === null ? "bundled" : "open") + (options.length ? "_with(" : "(") + given.join(", ") + ")?;");
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

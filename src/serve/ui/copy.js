// A request as a program that makes the same one.

import { FIELDS, fieldsOf, toRequest } from "./settings.js";

const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));

// A text as Rust writes it: hidden characters, which `visible` would show, by their numbers.
const rustText = (text) => '"' + text.replace(/["\\\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => ('"\\'.includes(char) ? "\\" + char : "\\u{" + char.codePointAt(0).toString(16) + "}")) + '"';

// The options that open the model again. Without its assistant, where the request does without: drafts draw, too.
const optionsOf = (side, opened) => Object.entries(opened).filter(([name, value]) => value !== null && (name !== "assistant" || side.strategy === "assisted_decoding"));

const list = (ids) => "[" + ids.join(", ") + "].map(rsgen::TokenId).to_vec()";

const capital = (name) => name.replace("num_", "").replace(/(?:^|_)(.)/g, (_, letter) => letter.toUpperCase());

// The value of a field as its builder takes it.
function rust(name, value) {
	const text = String(value);
	const each = (write) => "vec![" + value.map(write).join(", ") + "]";
	if (FIELDS.get(name)?.kind === "choice") return "rsgen::generation::" + capital(name) + "::" + capital(text);
	if (name === "force_words_ids") return each((ids) => "rsgen::generation::ForcedWord::Phrase(" + list(ids) + ")");
	if (name === "stop_strings") return each((one) => rustText(one) + ".to_owned()");
	if (name === "regex") return rustText(value);
	if (name === "seed") return text + "_u64";
	return Number.isInteger(value) && !Number.isInteger(FIELDS.get(name).step) ? value.toFixed(1) : text;
}

export function asPython(state, side, { opened, tokens }) {
	const fields = fieldsOf(side, state.seed, tokens);
	const { messages, prompt } = toRequest(state, side, { tokens });
	const options = optionsOf(side, opened).map(([name, value]) => (name === "model" ? "" : name + "=") + python(value));
	const chat = messages ? ["messages = " + python(messages), "prompt = gen.apply_chat_template(messages, add_generation_prompt=True)"] : [];
	return [
		"import rsgen", "", "gen = rsgen.Generator(" + options.join(", ") + ")", ...chat,
		"out = gen." + side.strategy + "(", "    " + (messages ? "prompt" : python(prompt)) + ",",
		...Object.entries(fields).map(([name, value]) => "    " + name + "=" + python(value) + ","),
		")", fields.num_return_sequences > 1 ? "print(out.texts)" : "print(out.text)", "",
	].join("\n");
}

function rustOption([name, value]) {
	if (name === "generation_config") return "ignore_generation_config(true)";
	let text = String(value);
	if (typeof value === "string") {
		text = rustText(value);
		if (name === "assistant") text = "rsgen::generator::Assistant::" + (value === "draft" ? "Bundled" : "from(" + text + ")");
		else if (name.endsWith("dtype")) text = "rsgen::generator::choices::" + name.toUpperCase() + ".parse(" + text + ")?";
		else text += name === "cache_dir" ? ".into()" : ".to_owned()";
	}
	return name + "(" + text + ")";
}

export function asRust(state, side, { opened, tokens }) {
	const { messages } = toRequest(state, side, { tokens });
	const { model = null, ...rest } = Object.fromEntries(optionsOf(side, opened));
	const options = Object.entries(rest).map((option) => "        ." + rustOption(option));
	const fields = Object.entries(fieldsOf(side, state.seed, tokens)).map(([name, value]) => "        ." + name + "(" + rust(name, value) + ")");
	const given = [model === null ? [] : rustText(model), options.length ? "&options" : []].flat().join(", ");
	const each = messages?.map(({ role, content }) => "        rsgen::Message::" + role + "(" + rustText(content) + "),");
	const prompt = messages ? "generator.chat_prompt(&messages, &rsgen::ChatOptions::default())?" : state.ids ? list(state.ids) : rustText(state.prompt);
	return [
		"use rsgen::{GenerationConfig, Generator};", "", "fn main() -> rsgen::Result<()> {",
		...(options.length ? ["    let options = rsgen::GeneratorOptions::new()", options.join("\n") + ";"] : []),
		"    let generator = Generator::" + (model === null ? "bundled" : "open") + (options.length ? "_with(" : "(") + given + ")?;",
		...(messages ? ["    let messages = [", ...each, "    ];"] : []),
		"    let config = GenerationConfig::new()", fields.join("\n") + ";",
		"    let output = generator." + side.strategy + "(" + prompt + ", &config)?;",
		'    output.texts().for_each(|text| println!("{text}"));', "    Ok(())", "}", "",
	].join("\n");
}

export function asCurl(state, side, { base, hasKey, ...known }) {
	const body = JSON.stringify(toRequest(state, side, known)).replaceAll("'", "'\\''");
	const key = hasKey ? ' -H "authorization: Bearer $RSGEN_API_KEY"' : "";
	return "curl -N '" + base + "rsgen/v1/generate'" + key + " --json '" + body + "'\n";
}

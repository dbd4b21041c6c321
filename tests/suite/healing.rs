//! Token healing gives what transformers gives: `tests/golden/token_healing.json`.

use rsgen::{GenerationConfig, Generator};

use crate::golden_support::{golden, integer, list, text, token_ids};

#[test]
fn prompts_are_healed_and_continued_as_in_transformers() {
    let generator = Generator::bundled().unwrap();
    let golden = golden("token_healing");
    let cases = list(&golden["cases"]);
    assert!(cases.len() >= 25);
    for case in cases {
        let fields = case["config"].as_object().unwrap().clone();
        let config = GenerationConfig::from_call(fields).unwrap();
        let config = config.seed(integer(&case["seed"])).token_healing(true);
        let output = generator.generate(text(&case["prompt"]), &config).unwrap();
        let sequences = list(&case["sequences"]);
        assert_eq!(output.rows.len(), sequences.len());
        for (row, expected) in output.rows.iter().zip(sequences) {
            let sequence = [row.prompt_ids.clone(), row.generated.token_ids.clone()].concat();
            let mut expected = token_ids(expected);
            expected.truncate(sequence.len());
            assert_eq!(sequence, expected, "{case}");
            let whole = generator.tokenizer().unwrap().decode(&sequence, true).unwrap();
            assert!(whole.ends_with(row.text.as_deref().unwrap()), "{whole:?} {:?}", row.text);
        }
    }
}

//! Pictures of fixed traces, as text and as HTML.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::text::Look;
use super::{Pictures, View};
use crate::engine::trace::Trace;

const LOOK: Look = Look { width: 80, max_lines: 100, unicode: true, colors: false };
const VIEWS: [View; 3] = [View::Probs, View::Beams, View::Drafts];

fn pictures(events: &[Value]) -> Pictures {
    let numbered = events.iter().enumerate().map(|(seq, event)| {
        let mut event = event.clone();
        event["seq"] = seq.into();
        event["t_us"] = 0.into();
        event
    });
    let events: Vec<Value> = numbered.collect();
    let trace = json!({"schema_version": 1, "events": events});
    Pictures::of(&Trace::from_json(&trace.to_string()).unwrap().events)
}

fn prompt(text: &str) -> Value {
    json!({"type": "prompt", "prompt": 0, "ids": [1], "texts": [text]})
}

fn token(pos: usize, text: &str, p: f32, top: &Value) -> Value {
    json!({"type": "token", "row": 0, "pos": pos, "id": pos as u32, "text": text, "logprob": p.ln(), "logprob_final": null,
        "rank": 2, "entropy": 1.5, "top": top, "finish_reason": null})
}

fn top(id: usize, text: &str, p_raw: f32, p_final: f32, cut_by: Option<&str>) -> Value {
    json!({"id": id, "text": text, "p_raw": p_raw, "p_final": p_final, "cut_by": cut_by})
}

fn node(n: u32, parent: Option<u32>, text: &str, state: &str) -> Value {
    json!({"n": n, "parent": parent, "beam": 0, "id": n, "text": text, "logprob": -0.5, "sum": -0.5, "score": -0.5,
        "group": 0, "state": state})
}

fn beam(step: usize, nodes: &[Value], frontier: &[u32]) -> Value {
    json!({"type": "beam", "prompt": 0, "step": step, "nodes": nodes, "frontier": frontier})
}

fn finish(path: &[u32]) -> Value {
    json!({"type": "finish", "usage": {"prompt_tokens": 1, "generated_tokens": 3}, "timings": {"first_token": 0.1,
        "total": 0.2}, "rows": [{"row": 0, "prompt": 0, "finish_reason": "length", "score": -0.5, "path": path}]})
}

fn story() -> Vec<Value> {
    let alternatives = json!([
        top(7, " big", 0.5, 0.8, None),
        top(1, " red", 0.2, 0.2, None),
        top(9, " blue", 0.1, 0.0, Some("top_p")),
    ]);
    vec![
        prompt("Once"),
        token(0, " a", 0.95, &json!([])),
        token(1, " red", 0.2, &alternatives),
        token(2, " fox\n", 0.7, &json!([])),
    ]
}

fn tree() -> Vec<Value> {
    vec![
        prompt("Once"),
        beam(0, &[node(0, None, " a", "alive"), node(1, None, " the", "alive")], &[0, 1]),
        beam(
            1,
            &[
                node(2, Some(0), " red", "alive"),
                node(3, Some(0), " big", "alive"),
                node(4, Some(1), " x", "pruned"),
            ],
            &[2, 3],
        ),
        beam(2, &[node(5, Some(2), " fox", "finished"), node(6, Some(3), " dog", "finished")], &[]),
        finish(&[0, 2, 5]),
    ]
}

fn drafts() -> Vec<Value> {
    let drafted = |text: &str| json!({"id": 1, "text": text, "p_draft": null, "p_target": 0.5});
    let round = |round: usize, accepted: usize| {
        json!({"type": "draft", "row": 0, "round": round, "source": "prompt_lookup", "accepted": accepted,
            "proposed": [drafted(" there"), drafted(" was"), drafted(" an")], "next": {"id": 2, "text": " a"}})
    };
    vec![round(0, 2), round(1, 3)]
}

#[test]
fn probabilities_are_a_strip_under_the_text_with_alternatives() {
    let expected = [
        "Once a red fox↵",
        "       ▆▆▆ ▂▂▂▂",
        "",
        "no bar: 90% and more   ▂ 60-90%   ▄ 30-60%   ▆ 10-30%   █ below 10%",
        "3 tokens, 51% each in the geometric mean, perplexity 1.96",
        "",
        "token 2 \" red\" had 20%, the 2nd choice",
        "                           the model                after the processors",
        "    \" big\"                 50% ███████         →   80% ███████████▎",
        "  ▸ \" red\"                 20% ██▊             →   20% ██▊",
        "    \" blue\"                10% █▍              ✂ cut by top_p",
        "",
        "token 3 \" fox↵\" had 70%, the 2nd choice",
        "",
    ]
    .join("\n");
    assert_eq!(pictures(&story()).text(View::Probs, &LOOK), expected);
    let plain = pictures(&story()).text(View::Probs, &Look { unicode: false, ..LOOK });
    assert!(plain.starts_with("Once a red fox\\n\n       222 77777"), "{plain}");
    assert!(plain.is_ascii(), "{plain}");
}

#[test]
fn beams_are_a_trunk_with_branches_that_say_how_they_ended() {
    let expected = [
        "     Once",
        "   1 ├─ the                                             ✂ died at 2      -0.500",
        "   1 │  a",
        "   2 ├─ big dog                                         ■ finished       -0.500",
        "   2 └─ red fox                                         ★ best           -0.500",
        "",
        "3 steps; 1 other continuations never became a beam",
        "score: the sum of the log-probabilities, divided by a power of the length",
        "",
    ]
    .join("\n");
    assert_eq!(pictures(&tree()).text(View::Beams, &LOOK), expected);
    let live = pictures(&tree()[..3]).text(View::Beams, &LOOK);
    assert!(live.contains("└─ red") && live.contains("● beam 1") && live.contains("● beam 2"), "{live}");
    let plain = pictures(&tree()).text(View::Beams, &Look { unicode: false, ..LOOK });
    assert!(plain.contains("   2 `- red fox ") && plain.contains("* best") && plain.is_ascii(), "{plain}");
}

#[test]
fn drafts_are_a_line_for_each_round() {
    let expected = [
        "   1 ■■□  2 of 3   there was[ an] +a",
        "   2 ■■■  3 of 3   there was an +a",
        "",
        "accepted, [rejected], +the model's own token",
        "6 tokens drafted by looking into the text, 5 accepted (83%)",
        "3.50 tokens a round in 2 rounds",
        "",
    ]
    .join("\n");
    assert_eq!(pictures(&drafts()).text(View::Drafts, &LOOK), expected);
}

#[test]
fn colours_change_nothing_but_colours_and_marks_of_drafts() {
    for (view, events) in [(View::Probs, story()), (View::Beams, tree())] {
        let pictures = pictures(&events);
        let colored = pictures.text(view, &Look { colors: true, ..LOOK });
        assert!(colored.contains("\x1b["));
        let mut plain = String::new();
        for (index, part) in colored.split("\x1b[").enumerate() {
            plain.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        assert_eq!(plain, pictures.text(view, &LOOK));
    }
}

#[test]
fn an_empty_picture_says_what_is_missing() {
    let empty = pictures(&[]);
    assert!(VIEWS.iter().all(|view| empty.text(*view, &LOOK).starts_with("no ")));
    assert_eq!(empty.views(), []);
}

#[test]
fn long_pictures_lose_their_middle() {
    let events: Vec<Value> = (0..5000).map(|pos| token(pos, " word\n", 0.5, &json!([]))).collect();
    let text = pictures(&events).text(View::Probs, &Look { max_lines: 20, ..LOOK });
    assert_eq!(text.lines().count(), 20);
    assert!(text.contains("⋮ ") && text.contains("more lines"), "{text}");
    let html = pictures(&events).html(&VIEWS);
    assert!(html.len() < 3 << 20 && html.contains("3000 more tokens"));
}

/// Checks that tags are closed in the order of their opening, and that nothing in them runs or loads.
fn check_html(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in html.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag has an end");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        let known = [
            "div", "style", "p", "span", "br", "table", "tr", "th", "td", "i", "b", "s", "svg", "path",
            "text", "rect",
        ];
        assert!(known.contains(&name), "{tag}");
        for attribute in ["href", "src", " on", "url(", "javascript"] {
            let outside = tag.split('"').step_by(2).any(|part| part.to_ascii_lowercase().contains(attribute));
            assert!(!outside, "{tag}");
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{html}");
        } else if name != "br" && !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn html_is_well_formed_and_shows_what_the_text_shows() {
    let events = [story(), tree()[1..].to_vec(), drafts()].concat();
    let html = pictures(&events).html(&VIEWS);
    check_html(&html);
    for shown in
        ["class=\"rp-h3\"", "✂ cut by top_p", "★ best", "✂ died at 2", "<s> an</s>", "prefers-color-scheme"]
    {
        assert!(html.contains(shown), "{shown}: {html}");
    }
}

/// Texts that would break a terminal or a page.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("<script>alert(1)</script>".to_owned()),
        Just("\"><img src=x onerror=alert(1)>".to_owned()),
        Just("\x1b[2J\u{202e}\u{0}'&".to_owned()),
        Just("日本語\n\t".to_owned()),
        Just(String::new()),
        Just("long".repeat(300)),
        ".{0,12}",
    ]
}

proptest! {
    #[test]
    fn whatever_a_trace_says_is_drawn_without_harm(
        texts in proptest::collection::vec(text(), 12),
        numbers in proptest::collection::vec(prop_oneof![0..8_u64, any::<u32>().prop_map(u64::from)], 24),
        p in any::<f32>().prop_filter("JSON has no others", |p| p.is_finite()),
        unicode in any::<bool>(),
        width in 80..120_usize,
    ) {
        let number = |index: usize| numbers[index] as u32;
        let states = ["alive", "pruned", "finished"];
        let nodes: Vec<Value> = (0..6)
            .map(|i| {
                let mut node = node(number(i), (number(i + 6) % 5 > 0).then(|| number(i + 6)), &texts[i], states[i % 3]);
                node["group"] = (numbers[i + 12] % 9 * 1_000_000_007).into();
                node["score"] = json!(p);
                node
            })
            .collect();
        let alternatives = json!([top(number(0) as usize, &texts[1], p, p, Some(&texts[2]))]);
        let mut draft = drafts().remove(0);
        (draft["accepted"], draft["round"]) = (numbers[20].into(), u64::MAX.into());
        let mut events = [
            prompt(&texts[0]),
            token(usize::MAX, &texts[3], 0.1, &alternatives),
            token(0, &texts[4], p.abs(), &json!([])),
            beam(usize::MAX, &nodes[..3], &[number(1), number(2)]),
            beam(number(3) as usize, &nodes[3..], &[number(3)]),
            draft,
            finish(&[number(4)]),
        ];
        // The last row and prompt that there can be, beside the first ones.
        (events[1]["row"], events[3]["prompt"]) = (usize::MAX.into(), usize::MAX.into());
        events[1]["rank"] = usize::MAX.into();
        let pictures = pictures(&events);
        for view in VIEWS {
            for colors in [false, true] {
                let text = pictures.text(view, &Look { width, unicode, colors, max_lines: 200 });
                prop_assert!(colors || !text.chars().any(|letter| letter != '\n' && rsgen_core::escape::is_hidden(letter)));
                prop_assert!(unicode || text.is_ascii());
                let wide = |line: &&str| unicode_width::UnicodeWidthStr::width(*line) > width;
                prop_assert!(colors || text.lines().find(wide).is_none(), "{}", text);
            }
        }
        let html = pictures.html(&VIEWS);
        check_html(&html);
        prop_assert!(!html.contains(['\x1b', '\u{202e}']), "it hides something");
    }
}

#[test]
fn deep_and_cyclic_trees_are_bounded() {
    let deep: Vec<Value> = (0..3000)
        .map(|n| {
            let nodes = [
                node(2 * n, n.checked_sub(1).map(|n| 2 * n), " a", "alive"),
                node(2 * n + 1, n.checked_sub(1).map(|n| 2 * n + 1 - n % 2), " b", "alive"),
            ];
            beam(n as usize, &nodes, &[2 * n, 2 * n + 1])
        })
        .collect();
    let circle = beam(0, &[node(1, Some(2), "a", "alive"), node(2, Some(1), "b", "alive")], &[1, 2]);
    for events in [deep, vec![circle]] {
        let pictures = pictures(&events);
        assert!(pictures.text(View::Beams, &LOOK).lines().count() <= 100);
        check_html(&pictures.html(&VIEWS));
    }
}

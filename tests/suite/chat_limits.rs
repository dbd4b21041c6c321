//! A chat template cannot run for long, fill memory, or end the process.

use std::time::{Duration, Instant};

use rsgen::Result;
use rsgen::text::{ChatOptions, ChatTemplate, Message};

/// The time that fuel leaves to a hostile template while other tests run; alone and optimized it takes a tenth of this.
const MAX_TIME: Duration = Duration::from_secs(30);
/// What fuel does not count ends with the time limit: 10 seconds, and more on a busy machine.
const MAX_TIME_WITHOUT_FUEL: Duration = Duration::from_secs(120);

fn printed(source: &str) -> Result<String> {
    ChatTemplate::from_source(source)?.render(&[Message::user("Hi")], &ChatOptions::default())
}

#[test]
fn bombs_end_soon_with_an_error() {
    let twenty_sets: Vec<String> =
        (1..40).map(|i| format!("{{% set a{i} = [a{0}, a{0}] %}}", i - 1)).collect();
    let twenty_sets = twenty_sets.concat();
    let twenty_tuples = twenty_sets.replace('[', "(").replace(']', ")");
    let twenty_dicts = twenty_sets.replace('[', "{'l': ").replace(", a", ", 'r': a").replace(']', "}");
    let bombs = [
        // Texts.
        "{{ 'a' * 100000000 }}".to_owned(),
        "{% for i in range(1000) %}{{ 'a' * 1000000 }}{% endfor %}".to_owned(),
        "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}".to_owned(),
        "{{ 'a'|center(100000000) }}".to_owned(),
        "{{ 'a'.ljust(100000000) }}".to_owned(),
        "{{ 'a'.zfill(9223372036854775807) }}".to_owned(),
        "{{ 'a\\nb'|indent(100000000) }}".to_owned(),
        "{{ '%100000000d' % 1 }}{{ '%.1000000000f' % 1.0 }}".to_owned(),
        "{{ '%.1000000000d' % 1 }}".to_owned(),
        "{{ '{:>100000000}'.format(1) }}{{ '{:.999999999f}'.format(1.0) }}".to_owned(),
        "{{ '\\t'.expandtabs(1000000000000) }}".to_owned(),
        "{{ range(100000)|join('a' * 100000) }}".to_owned(),
        "{{ [[1]]|tojson(indent=1000000000) }}".to_owned(),
        "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{{ x in x ~ 'c' }}{% endfor %}".to_owned(),
        "{% set x = 'a' * 5000000 %}{% for i in range(100000) %}{% set y = x|length %}{% endfor %}".to_owned(),
        // Lists.
        "{{ [1] * 100000000 }}".to_owned(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}".to_owned(),
        "{{ range(1000000000) }}".to_owned(),
        "{{ [1]|batch(1000000000, 0)|list }}".to_owned(),
        "{{ [1]|slice(1000000000)|list }}".to_owned(),
        "{% set x = range(100000)|list %}{% for i in range(100000) %}{{ x.index(99999) }}{% endfor %}".to_owned(),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ a39 }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ a39|tojson }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{% set b = a39 %}}{twenty_sets}{{{{ a39 == b }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{% set b = a39 %}}{twenty_sets}{{{{ a39 < b }}}}"),
        format!("{{% set a0 = (1, 1) %}}{twenty_tuples}{{{{ {{a39: 1}} }}}}"),
        format!("{{% set a0 = (1, 1) %}}{twenty_tuples}{{{{ a39 in {{}} }}}}"),
        "{% for i in [1,2] %}{{ loop.changed(range(100000)|list * 100) }}{% endfor %}".to_owned(),
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.x = [ns, ns] %}{{ ns }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns|tojson }}".to_owned(),
        "{{ (1,) * 100000000 }}".to_owned(),
        "{{ [1] * 10000 * 10000 }}".to_owned(),
        "{{ ('a' * 10000000 + 'b') * 3 }}".to_owned(),
        "{{ 'a' * 9223372036854775807 }}".to_owned(),
        "{{ ([1] * 100000)[::-1] * 1000 }}".to_owned(),
        "{{ 'a'[:9223372036854775807:9223372036854775807] * 100000000 }}".to_owned(),
        format!("{{% set a0 = (1, 1) %}}{twenty_tuples}{{{{ [1, a39]|unique }}}}"),
        format!("{{% set a0 = (1, 1) %}}{twenty_tuples}{{{{ {{1: 2}}.get(a39) }}}}"),
        format!("{{% set a0 = (1, 1) %}}{twenty_tuples}{{{{ {{1: 2}}[a39] }}}}"),
        format!("{{% set a0 = (1, 1) %}}{twenty_tuples}{{{{ dict([(a39, 1)]) }}}}"),
        format!("{{% set a0 = 1 %}}{twenty_dicts}{{{{ a39 }}}}"),
        format!("{{% set a0 = 1 %}}{twenty_dicts}{{{{ a39 == dict(a39) }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ a39 + a39 == a39 * 2 }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ [a39]|map('default', a39)|list }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ [a39]|select('eq', a39)|list }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ [a39]|batch(2, a39) }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ a39|sum(start=[])|string }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ [a39, a39[:]]|min }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ '%s' % [a39] }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{{{ raise_exception(a39) }}}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{% with b = a39[:] %}}{{{{ b == a39 }}}}{{% endwith %}}"),
        format!("{{% set a0 = [1] %}}{twenty_sets}{{% macro m(a) %}}{{{{ a }}}}{{% endmacro %}}{{{{ m(a39) }}}}"),
        // Text between tags.
        format!("{{% for i in range(100000) %}}{}{{% endfor %}}", " ".repeat(50_000)),
        format!("{{% for i in range(100000) %}}{{% raw %}}{}{{% endraw %}}{{% endfor %}}", "a".repeat(50_000)),
        format!("{{% set ns = namespace(l=[]) %}}{{% for i in range(100000) %}}{{% set y %}}{}{{% endset %}}{{% set ns.l = ns.l + [y] %}}{{% endfor %}}", "a".repeat(50_000)),
        // Work without results.
        format!("{{{{ (['a'] * 100000)|map(attribute='{}0')|list }}}}", "0.".repeat(100_000)),
        format!("{{{{ (['a'] * 100000)|selectattr('{}0')|list }}}}", "0.".repeat(100_000)),
        "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set y = 'a'.strip(x) %}{% endfor %}".to_owned(),
        "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set y = 'a'|trim(chars=x) %}{% endfor %}".to_owned(),
        "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set y = 'a'.split(x) %}{% endfor %}".to_owned(),
        "{{ ('%' ~ '*' * 100000 ~ 'd') % ((1,) * 100000) }}".to_owned(),
        "{% set x = 'ab' * 1000000 %}{% for i in [1] recursive %}{% for j in range(100000) %}{% set y = loop(x)|length %}{% endfor %}{% endfor %}".to_owned(),
        format!("{{% for i in range(100000) %}}{{% set y = '%{}5d' % 1 %}}{{% endfor %}}", "0".repeat(100_000)),
        "{% set x = ',' * 1000000 %}{% for i in range(100000) %}{% set y = [1, 2]|sort(attribute=x) %}{% endfor %}".to_owned(),
        format!("{{{{ ([[1, 2]] * 50000)|sort(attribute='{}0') }}}}", "0.".repeat(100_000)),
        "{% set d = dict(range(100000)|batch(2)) %}{% set ns = namespace(d) %}".to_owned(),
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set y = 3 ** 70 // 7 % 11 %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set y = [1, 2][0:1] %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set y = 'a b c d'.title() %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set y = '5'|int is string %}{% endfor %}{% endfor %}".to_owned(),
        "{% set d = dict(range(60000)|map('string')|list|batch(2)) %}{% for i in range(100000) %}{% set ns = namespace(d) %}{% endfor %}".to_owned(),
        "{% set x = 'aΣ' * 100000 %}{% for i in range(1000) %}{% set y = x|title ~ x.title() ~ x|capitalize %}{% endfor %}".to_owned(),
        // Loops and recursion.
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(100000) %}{% for j in range(100000) %}aaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}".to_owned(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}".to_owned(),
        "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}".to_owned(),
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned(),
        "{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% set x = namespace() %}{% endfor %}{{ 1/0 }}".to_owned(),
        // Sources.
        format!("{{{{ {} }}}}", "(".repeat(25_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(1900)),
        format!("{{{{ {}1 }}}}", "-".repeat(25_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(25_000)),
        format!("{{{{ a{} }}}}", ".a".repeat(900)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(4_000)),
        format!("{{% set {}a{} = 1 %}}", "(".repeat(25_000), ")".repeat(25_000)),
        "{% if a %}\n".repeat(10_000) + &"{% endif %}".repeat(5_000),
        "{% if a %}".to_owned() + &"{% elif a %}\n".repeat(10_000) + "{% endif %}",
        "{{".repeat(25_000),
        "{%".repeat(25_000),
        "{#".repeat(25_000),
    ];
    // Work on an argument, or on what is thrown away.
    let discarded = [
        "'a'.find(x)",
        "x.find('b')",
        "x.rfind('c')",
        "'a'.count(x)",
        "x.count('ba')",
        "x.split('ab')",
        "x.split('c')",
        "x.rsplit('c', 1)",
        "'a'.replace(x, '')",
        "x.replace('c', '')",
        "x.replace('', '')",
        "'a'.partition(x)",
        "x.partition('c')",
        "x.strip('ab')",
        "'a'.strip(x)",
        "'a'.lstrip(chars=x)",
        "x|trim('ab')",
        "'a'|trim(x)",
        "'a b c'|truncate(3, end=x, leeway=0)",
        "[1, 2]|tojson(separators=(x, x))",
        "1|tojson(separators=(x, x))",
        "x.startswith(x)",
        "x.endswith((x, x))",
        "x.isalpha()",
        "x.splitlines()",
        "x.removeprefix(x)",
        "x[999]",
        "x.find('c', 5, -1)",
        "x.rfind('b', -5)",
        "x.startswith('b', i)",
        "x.title()",
        "x|capitalize",
        "x|last",
        "x|reverse|length",
        "x * 1",
        "x + ''",
        "{'a': 1}[x]",
        "x is sameas(x ~ 'a')",
        "x is filter",
        "[x, x ~ 'a']|min",
        "x[::-1][1]",
        "x == x ~ 'a'",
        "x < x",
        "x in [x, x]",
        "[x] == [x]",
        "{x: 1}",
        "{}[x]",
        "'a' is in x",
        "x|length",
        "x|first",
        "x|wordcount",
        "x|int",
        "x|escape|length",
        "x|urlencode|length",
        "x|striptags|length",
        "x|title|length",
        "'a'|replace(x, 'b')",
        "'%s' % x == ''",
        "'{0}{0}'.format(x) == ''",
        "strftime_now(x)",
        "dict(a=x)|string|length",
        "namespace(a=x)",
        "[x]|map('upper')|list|length",
        "[x]|select('in', x)|list|length",
        "[x, x]|groupby(0)|length",
        "[x, x]|unique|list|length",
        "[x, x]|sort|length",
        "[x]|sum(start=[x] * 1000)|length",
        "loop.changed(x ~ i)",
        "x|batch(2)|list|length",
        "x|list|length",
    ];
    let discarded = discarded.map(|work| {
        format!(
            "{{% set x = 'ab' * 500000 %}}{{% for i in range(100000) %}}{{% set y = {work} %}}{{% endfor %}}"
        )
    });
    for bomb in bombs.into_iter().chain(discarded) {
        let started = Instant::now();
        let result = printed(&bomb);
        let (took, name) = (started.elapsed(), bomb.chars().take(140).collect::<String>());
        assert!(took < MAX_TIME, "{name}: {took:?}");
        if !name.contains("not not") {
            let message = result.map(|text| text.len()).expect_err(&name).to_string();
            assert!(message.starts_with("chat template"), "{message}");
        }
    }
}

/// Slices and places of long texts, and tests on them, are counted as one step each, however long the text is.
#[test]
fn what_fuel_does_not_count_ends_with_the_time_limit() {
    for work in ["x[-1:] == x", "x[i:i + 1]", "x is lower"] {
        let bomb = format!(
            "{{% set x = 'ab' * 2500000 %}}{{% for i in range(100000) %}}{{% set y = {work} %}}{{% endfor %}}"
        );
        let started = Instant::now();
        let message = printed(&bomb).expect_err(work).to_string();
        assert!(started.elapsed() < MAX_TIME_WITHOUT_FUEL, "{work}: {:?}", started.elapsed());
        assert!(message.contains("takes too long") || message.contains("more time"), "{message}");
    }
    // The workers that were left have ended: they ask at each statement.
    assert_eq!(printed("{{ 1 }}").unwrap(), "1");
}

#[test]
fn a_panic_of_minijinja_is_the_error_of_the_call() {
    for source in ["{{ '%(\u{e9}' % {'\u{e9}': 1} }}", "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}"] {
        let error = printed(source).unwrap_err();
        assert_eq!(error.kind(), rsgen::ErrorKind::Input, "{error}");
        assert!(error.to_string().contains("panic"), "{error}");
    }
}

#[test]
fn what_reaches_out_of_a_template_is_refused() {
    for source in [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ messages[0].__class__.__init__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ open('/etc/passwd') }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
    ] {
        assert!(printed(source).is_err(), "{source}");
    }
}

#[test]
fn errors_name_the_line_and_the_reason() {
    for (source, message) in [
        ("a\n{{ x.y }}", "chat template, line 2: `x` is undefined"),
        ("\n\n{{ messages[0].tool.name }}", "chat template, line 3: `messages[0].tool` is undefined"),
        ("{{ raise_exception('Roles must alternate') }}", "chat template, line 1: Roles must alternate"),
        ("{{ 'a' * 1.5 }}", "chat template, line 1: `*` does not go with str and float"),
        (
            "{{ 'a' + 1 }}",
            "chat template, line 1: tried to use + operator on unsupported types string and number",
        ),
        ("{{ 'a' | nope }}", "chat template, line 1: there is no filter `nope`"),
        ("{{ 'a' is nope }}", "chat template, line 1: there is no test `nope`"),
        ("\n{% if messages %}", "chat template, line 2: `if` has no end"),
        ("{{ 1 +", "chat template, line 1: a tag has no `}}`"),
    ] {
        assert_eq!(printed(source).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_larger_input_has_a_larger_budget() {
    let source = "{% for m in messages %}{% for n in messages %}{{ n.content|trim }}{% endfor %}{% endfor %}";
    let messages = vec![Message::user("word ".repeat(40)); 200];
    let template = ChatTemplate::from_source(source).unwrap();
    assert_eq!(template.render(&messages, &ChatOptions::default()).unwrap().len(), 200 * 200 * 199);
}

#[test]
fn templates_run_on_small_stacks() {
    let nested = |open: &str, close: &str, depth| open.repeat(depth) + "1" + &close.repeat(depth);
    let calls =
        "{% macro m(n) %}{% if n %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(80) }}".to_owned();
    for (source, len) in [
        (calls, Some(151)),
        (format!("{{{{ {} }}}}", nested("(", ")", 20)), Some(1)),
        (format!("{{{{ {} }}}}", nested("[", "]", 20)), Some(41)),
        (format!("{{{{ {} }}}}", nested("{1: ", " }", 20)), Some(101)),
        (nested("{% if 1 %}", "{% endif %}", 40), Some(1)),
        (format!("{{{{ {} }}}}", nested("(", ")", 40)), None),
        (format!("{{{{ {} }}}}", nested("(", ")", 50_000)), None),
        (nested("{% if 1 %}", "{% endif %}", 9_000), None),
        (format!("{{{{ {}1 }}}}", "-".repeat(50_000)), None),
    ] {
        let shown = source[..source.len().min(60)].to_owned();
        let run = move || match len {
            Some(_) => printed(&source).ok().map(|text| text.len()),
            None => ChatTemplate::from_source(source).ok().map(|_| 0),
        };
        let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(run).unwrap();
        assert_eq!(thread.join().unwrap(), len, "{shown}");
    }
}

fn refused(source: &str) -> String {
    ChatTemplate::from_source(source).unwrap_err().to_string()
}

#[test]
fn generation_tags_become_scopes_and_nothing_else_changes() {
    let source =
        "a {%- generation -%}\r\n b{{ '{% generation %}' }}{% endgeneration %}{# {% generation %} #}";
    assert_eq!(printed(source).unwrap(), "ab{% generation %}");
    assert_eq!(printed("{% raw %}{% generation %}{% endraw %}").unwrap(), "{% generation %}");
}

#[test]
fn blocks_must_be_closed_in_order() {
    assert!(refused("\n{% if x %}a").ends_with("line 2: `if` has no end"));
    assert!(refused("{% if x %}{% for a in b %}{% endif %}").contains("expected `endfor`, found `endif`"));
    assert!(refused("{% endfor %}").contains("`endfor` ends nothing"));
    assert!(refused("{% set x %}").contains("`set` has no end"));
    let source = "{% set x = dict(a=1) %}{% set y | replace('a', new='b') %}a{% endset %}{{ y }}{{ x.a }}";
    assert_eq!(printed(source).unwrap(), "b1");
}

#[test]
fn sizes_are_limited_before_parsing() {
    assert!(refused(&" ".repeat((256 << 10) + 1)).contains("at most 262144 bytes"));
    assert!(refused(&" ".repeat(60_001)).contains("each of at most 60000 bytes"));
    assert!(refused(&"a".repeat(60_001)).contains("at most 60000 lines"));
    assert!(refused(&"a\r".repeat(60_001)).contains("at most 60000 lines"));
    assert!(refused(&format!("{{{{ a{} }}}}", "+a".repeat(1000))).contains("at most 2000 tokens"));
    let branches = format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(201));
    assert!(refused(&branches).contains("at most 200 `elif`"));
}

#[test]
fn nesting_has_an_end() {
    let source = "{% set ns = namespace(x=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let message = printed(source).unwrap_err().to_string();
    assert!(message.ends_with("lists and dicts may be nested 200 deep"), "{message}");
    assert!(printed(&source.replace("300", "150")).is_ok());
}

#[test]
fn a_rendering_ends_when_it_is_cancelled() {
    let source =
        "{% for message in messages %}{% for other in messages %}{{ other.content }}{% endfor %}{% endfor %}";
    let template = ChatTemplate::from_source(source).unwrap();
    let messages = vec![Message::user("a".repeat(50)); 10_000];
    let begin = std::time::Instant::now();
    let result = template.render_interruptible(&messages, &ChatOptions::default(), &mut || true);
    assert_eq!(result.unwrap_err().kind(), rsgen::ErrorKind::Cancelled);
    assert!(begin.elapsed() < std::time::Duration::from_secs(2), "{:?}", begin.elapsed());
}

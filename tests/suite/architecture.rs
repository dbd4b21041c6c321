//! The rules of ARCHITECTURE.md, checked: crates, layers, headers, lengths, and a test for everything registered.
//!
//! The compiler holds a crate to its dependencies; here they are compared with the page's tables, so that page and code stay
//! in agreement. Tests of the checker itself are at the end, on small sources that break a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::rust_source::{root_paths, test_code, tokens};

const MAX_LINES: usize = 500;
/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] =
    &[("tools/story_model/story_corpus.py", "word lists and phrases that belong together")];
/// The crates that do not forbid `unsafe`: the arithmetic, which expects it, and the extension, whose macros generate it. There
/// the lint of the workspace denies what is written by hand.
const UNSAFE_CRATES: &[&str] = &["crates/kernels", "crates/python"];
/// Where sockets may be named: the server listens, and nothing connects.
const NETWORK_PLACES: &[&str] = &["src/serve/"];
/// What alone is a client, behind a feature: it sends spans to a collector.
const TRACES: &str = "src/serve/traces.rs";
/// Traits whose implementors in a folder each need a golden or a test.
const REGISTERED: &[(&str, &str)] = &[
    ("LogitsProcessor", "crates/generation/src/logits/"),
    ("Search", "crates/generation/src/search/"),
    ("TokenChoice", "crates/generation/src/search/"),
    ("WeightFormat", "crates/kernels/src/quant/"),
];

#[test]
fn crates_depend_on_what_the_page_says() {
    let page = crate_table(&read("ARCHITECTURE.md"));
    let manifests = manifests().into_iter().map(|folder| {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        (package_name(&manifest), own_dependencies(&manifest))
    });
    assert_eq!(manifests.collect::<BTreeMap<_, _>>(), page);
}

#[test]
fn imports_follow_the_layer_table() {
    let layers = Layers::parse(&read("ARCHITECTURE.md")).expect("the table is readable");
    report(files("src", "rs").iter().flat_map(|path| layers.faults(path, &read(path))));
}

#[test]
fn every_other_crate_forbids_unsafe() {
    let safe = manifests().into_iter().filter(|folder| !UNSAFE_CRATES.contains(&folder.as_str()));
    let lax =
        safe.filter(|folder| !read(&format!("{folder}/src/lib.rs")).contains("#![forbid(unsafe_code)]"));
    report(lax.map(|folder| format!("{folder}/src/lib.rs: it does not forbid `unsafe`")));
}

#[test]
fn the_library_reaches_no_network() {
    let reaching = |path: &String| {
        let text = read(path);
        let code = tokens(&text[..text.len() - test_code(path, &text).len()]);
        let is_server = NETWORK_PLACES.iter().any(|place| path.starts_with(place));
        let names: &[&str] = if is_server {
            &["connect", "TcpSocket", "UdpSocket"]
        } else {
            &["net", "TcpStream", "TcpListener", "UdpSocket"]
        };
        let is_client = path != TRACES && code.iter().any(|token| token.1 == "ureq");
        is_client || code.iter().any(|token| names.contains(&token.1))
    };
    report(sources().into_iter().filter(reaching).map(|path| format!("{path}: it names the network")));
}

#[test]
fn every_rust_file_says_what_it_is() {
    let folders = ["src", "crates", "fuzz/src", "tests", "benches", "examples"];
    let sources = folders.iter().flat_map(|folder| files(folder, "rs"));
    let silent = sources.filter(|path| !read(path).starts_with("//! "));
    report(silent.map(|path| format!("{path}: the first line must be `//! ` and say what the file is")));
}

#[test]
fn no_file_is_too_long() {
    let folders = ["src", "crates", "fuzz", "tests", "benches", "examples", "python", "tools"];
    let sources = folders.iter().flat_map(|folder| [files(folder, "rs"), files(folder, "py")].concat());
    let lengths = sources.map(|path| (path.clone(), read(&path).lines().count())).collect();
    report(length_faults(&lengths, LONG_FILES));
}

#[test]
fn everything_registered_has_a_golden_or_a_test() {
    let sources: Vec<(String, String)> =
        sources().into_iter().map(|path| (path.clone(), read(&path))).collect();
    let in_sources = sources.iter().map(|(path, text)| test_code(path, text).to_owned());
    let beside = files("tests", "rs").into_iter().filter(|path| path != "tests/suite/architecture.rs");
    let tested =
        in_sources.chain(beside.map(|path| read(&path))).flat_map(|text| names_in_tests(&text)).collect();
    let golden = files("tests/golden", "json").iter().flat_map(|path| words(&read(path))).collect();
    report(REGISTERED.iter().flat_map(|&rule| registry_faults(rule, &sources, &tested, &golden)));
}

/// The crates of the page's table, each with those that it depends on.
fn crate_table(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| line.split('|').collect::<Vec<_>>());
    rows.map(|cells| (quoted(cells[1]).remove(0), quoted(cells[3]).into_iter().collect())).collect()
}

fn package_name(manifest: &str) -> String {
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""));
    name.expect("a name").trim_end_matches('"').to_owned()
}

/// The crates of this workspace that a manifest names as dependencies, those of tests aside.
fn own_dependencies(manifest: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names = lines.take_while(|line| !line.starts_with('[')).map(|line| line.split([' ', '.']).next());
    let own = names.flatten().filter(|name| *name == "rsgen" || name.starts_with("rsgen-"));
    own.map(|name| if name == "rsgen" { "rsgen-llm" } else { name }.to_owned()).collect()
}

/// The folders of the workspace's packages; `.` is the root.
fn manifests() -> Vec<String> {
    let mut folders: Vec<_> = ["core", "generation", "kernels", "model", "python", "python-macros", "text"]
        .map(|name| format!("crates/{name}"))
        .into();
    let listed = fs::read_dir(root().join("crates")).expect("the crates").count();
    assert_eq!(folders.len(), listed, "a crate is not listed here");
    folders.extend([".".to_owned(), "fuzz".to_owned()]);
    folders
}

/// All sources that ship.
fn sources() -> Vec<String> {
    [files("src", "rs"), files("crates", "rs")].concat()
}

/// The contents of the table of folders: those that each may import.
struct Layers {
    imports: BTreeMap<String, BTreeSet<String>>,
}

impl Layers {
    fn parse(page: &str) -> Result<Self, String> {
        let table: Vec<Vec<&str>> = page
            .lines()
            .skip_while(|line| !line.starts_with("| layer |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let mut rows = Vec::new();
        for cells in &table {
            let [layer, folders, imports, _] = cells[..] else {
                return Err(format!("a row of {} cells, expected 4", cells.len()));
            };
            let layer: u32 = layer.parse().map_err(|_| format!("the layer `{layer}` is no number"))?;
            rows.push((layer, quoted(folders), imports));
        }
        if rows.is_empty() {
            return Err("no table whose first column is `layer`".into());
        }
        let mut layers = Self { imports: BTreeMap::new() };
        for (_, folders, imports) in &rows {
            let mut allowed: BTreeSet<String> = folders.iter().cloned().collect();
            for part in imports.split(',').map(str::trim).filter(|part| *part != "–") {
                if let Some(excluded) = part.strip_prefix("not ") {
                    for folder in quoted(excluded) {
                        allowed.remove(&folder);
                    }
                } else if part.starts_with('`') {
                    allowed.extend(quoted(part));
                } else {
                    let (first, last) = part.split_once('–').unwrap_or((part, part));
                    let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else {
                        return Err(format!(
                            "`{part}` is neither a layer, a range, a folder nor `not` a folder"
                        ));
                    };
                    let range = rows.iter().filter(|(layer, ..)| (first..=last).contains(layer));
                    allowed.extend(range.flat_map(|(_, folders, ..)| folders.clone()));
                }
            }
            for folder in folders {
                layers.imports.insert(folder.clone(), allowed.clone());
            }
        }
        let unknown = layers.imports.values().flatten().find(|folder| !layers.imports.contains_key(*folder));
        unknown.map_or(Ok(()), |folder| Err(format!("`{folder}` is imported but has no row")))?;
        Ok(layers)
    }

    fn faults(&self, path: &str, source: &str) -> Vec<String> {
        let mut module: Vec<&str> =
            path.trim_start_matches("src/").trim_end_matches(".rs").split('/').collect();
        if module.last().is_some_and(|name| ["mod", "lib"].contains(name)) {
            module.pop();
        }
        let folder = module.first().copied().unwrap_or_default();
        let is_root = folder.is_empty();
        let allowed = self.imports.get(folder);
        if allowed.is_none() && !is_root {
            return vec![format!("{path}: `{folder}` has no row in the layer table")];
        }
        let tokens = tokens(source);
        let mut faults = Vec::new();
        for (line, target) in root_paths(&tokens, &module) {
            if is_root || allowed.is_some_and(|allowed| allowed.contains(target)) {
                continue;
            }
            faults.push(if self.imports.contains_key(target) {
                format!("{path}:{line}: `{folder}` may not import `{target}`")
            } else {
                format!("{path}:{line}: `crate::{target}` hides its layer: name the module that defines it")
            });
        }
        faults
    }
}

fn length_faults(lengths: &BTreeMap<String, usize>, long_files: &[(&str, &str)]) -> Vec<String> {
    let excused = |path: &str| long_files.iter().any(|(name, _)| *name == path);
    let too_long = lengths.iter().filter(|(path, lines)| **lines > MAX_LINES && !excused(path));
    let needless =
        long_files.iter().filter(|(path, _)| lengths.get(*path).is_none_or(|lines| *lines <= MAX_LINES));
    too_long
        .map(|(path, lines)| format!("{path}: {lines} lines, more than {MAX_LINES}: does it hold two kinds?"))
        .chain(needless.map(|(path, _)| format!("{path}: the exception is no longer needed")))
        .collect()
}

/// `tested` holds the names in all tests, `golden` the words of all goldens. A test names the type; a golden names the type,
/// or has cases that are named after the file: `greedy`, `greedy_left_padded`.
fn registry_faults(
    (kind, folder): (&str, &str),
    sources: &[(String, String)],
    tested: &BTreeSet<String>,
    golden: &BTreeSet<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut defined, mut implementors) = (false, 0);
    for (path, source) in sources.iter().filter(|(path, _)| path.starts_with(folder)) {
        let tokens = tokens(&source[..source.len() - test_code(path, source).len()]);
        for four in tokens.windows(4) {
            let [(_, before), (line, name), (_, after), (_, implementor)] = *four else { continue };
            defined |= before == "trait" && name == kind;
            if name != kind || after != "for" || ["&", "Box", "Arc"].contains(&implementor) {
                continue;
            }
            implementors += 1;
            let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let case_of = |word: &String| {
                word.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            };
            if !tested.contains(implementor) && !golden.contains(implementor) && !golden.iter().any(case_of) {
                faults.push(format!("{path}:{line}: no golden and no test names `{implementor}`"));
            }
        }
    }
    if defined && implementors == 0 {
        faults.push(format!(
            "{folder}: the trait `{kind}` has no implementor here: does the rule look elsewhere?"
        ));
    }
    faults
}

/// The names in the code of a file with a test that runs; without those in comments and strings.
fn names_in_tests(source: &str) -> BTreeSet<String> {
    let tokens = tokens(source);
    let marked = |attribute: &str| {
        tokens
            .windows(4)
            .filter(|four| four.iter().map(|token| token.1).eq(["#", "[", attribute, "]"]))
            .count()
    };
    let ignored = tokens.windows(2).filter(|two| two[0].1 == "[" && two[1].1 == "ignore").count();
    let runs = marked("test") > ignored || tokens.iter().any(|token| token.1 == "proptest");
    tokens.iter().filter(|_| runs).map(|token| token.1.to_owned()).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The files below a folder with an extension, as paths from the root with `/`, sorted.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root().join(&folder)) else { continue };
        for entry in entries {
            let name = entry.expect("a readable folder").file_name();
            let path = folder.join(&name);
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn report(faults: impl IntoIterator<Item = String>) {
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "{} against ARCHITECTURE.md:\n{}", faults.len(), faults.join("\n"));
}

mod tests {
    use super::*;

    const PAGE: &str = "\
| crate | folder | depends on | knows |
|---|---|---|---|
| `rsgen-core` | `crates/core` | – | |
| `rsgen-llm` | `src` | `rsgen-core`, `rsgen-text` | |

| layer | folder | may import | knows |
|---|---|---|---|
| 0 | `error`, `types` | – | |
| 1 | `kernels` | 0 | |
| 2 | `text` | 0–1 | |
| 3 | `cache` | 0–2, not `text` | |
| 4 | `cli`, `bin` | 0, `cache` | |
";

    fn faults(path: &str, source: &str) -> Vec<String> {
        Layers::parse(PAGE).expect("a readable table").faults(path, source)
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn ranges_names_and_exclusions_of_the_table_are_understood() {
        let layers = Layers::parse(PAGE).unwrap();
        assert_eq!(layers.imports["cache"], set(&["cache", "error", "kernels", "types"]));
        assert_eq!(layers.imports["bin"], set(&["bin", "cache", "cli", "error", "types"]));
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error() {
        assert!(Layers::parse("no table").is_err());
        assert!(Layers::parse(&PAGE.replace("| 0–1 |", "| everything |")).is_err());
        assert!(Layers::parse(&PAGE.replace("0, `cache`", "0, `cash`")).is_err());
        assert!(Layers::parse(&PAGE.replace("| 3 |", "| three |")).is_err());
        assert!(Layers::parse(&PAGE.replace("| – | |", "| – |")).is_err());
    }

    #[test]
    fn an_import_from_above_is_a_fault() {
        assert_eq!(faults("src/cache/pool.rs", "use crate::{error::Error, cache::table};"), [""; 0]);
        assert_eq!(
            faults("src/cache/pool.rs", "\nuse crate::text::x;"),
            ["src/cache/pool.rs:2: `cache` may not import `text`"]
        );
        assert_eq!(faults("src/text/mod.rs", "use super::cache;").len(), 1);
        assert_eq!(faults("src/bin/rsgen.rs", "rsgen::text::x();").len(), 1);
        assert_eq!(faults("src/lib.rs", "pub use crate::cache::Pool; pub mod text;"), [""; 0]);
    }

    #[test]
    fn a_path_through_the_root_and_a_folder_without_a_row_are_faults() {
        assert_eq!(faults("src/cache/pool.rs", "use crate::Error;").len(), 1);
        assert_eq!(faults("src/misc/mod.rs", "").len(), 1);
    }

    #[test]
    fn the_page_and_the_manifest_name_the_same_dependencies() {
        let manifest = "name = \"rsgen-llm\"\n[dependencies]\nclap = \"4\"\nrsgen-core.workspace = true\n\
                        rsgen-text = { path = \"x\" }\n[dev-dependencies]\nrsgen-model = \"1\"\n";
        assert_eq!(crate_table(PAGE)[&package_name(manifest)], own_dependencies(manifest));
        assert_eq!(own_dependencies(manifest), set(&["rsgen-core", "rsgen-text"]));
    }

    #[test]
    fn only_code_of_a_file_with_a_test_that_runs_counts() {
        let names = |source| names_in_tests(source).contains("Dola");
        assert!(names("fn made() -> Dola { Dola } #[test] fn it_works() { made(); }"));
        assert!(!names("// Dola\n#[test] fn it_works() { assert!(true, \"Dola\"); }"));
        assert!(!names("#[test] #[ignore = \"slow\"] fn it_works() { Dola; }"));
        assert!(!names("fn helper() { Dola; }"));
    }

    #[test]
    fn long_files_and_needless_exceptions_are_faults() {
        let lengths =
            BTreeMap::from([("long.rs".to_owned(), MAX_LINES + 1), ("short.rs".to_owned(), MAX_LINES)]);
        assert_eq!(length_faults(&lengths, &[]).len(), 1);
        assert_eq!(length_faults(&lengths, &[("long.rs", "")]), [""; 0]);
        assert_eq!(length_faults(&lengths, &[("long.rs", ""), ("short.rs", "")]).len(), 1);
        assert_eq!(length_faults(&lengths, &[("long.rs", ""), ("gone.rs", "")]).len(), 1);
    }

    #[test]
    fn a_registered_type_without_golden_or_test_is_a_fault() {
        let rule = ("Search", "src/search/");
        let source = |text: &str| vec![("src/search/greedy.rs".to_owned(), text.to_owned())];
        let registry = |text: &str, tested: &[&str], golden: &[&str]| {
            registry_faults(rule, &source(text), &set(tested), &set(golden)).len()
        };
        let code = "pub trait Search {}\nimpl Search for GreedySearch<'_> {}\n";
        assert_eq!(registry(code, &[], &[]), 1);
        assert_eq!(registry(code, &["GreedySearch"], &[]), 0);
        assert_eq!(registry(code, &[], &["greedy"]), 0);
        assert_eq!(registry(code, &[], &["greedy_left_padded"]), 0);
        assert_eq!(registry(code, &[], &["greedyish"]), 1);
        assert_eq!(registry(code, &["greedy"], &[]), 1);
        assert_eq!(registry("pub trait Search {}", &[], &[]), 1);
        let in_tests = format!("{code}#[cfg(test)]\nmod tests {{\n impl Search for Fake {{}} }}");
        assert_eq!(registry(&in_tests, &["GreedySearch"], &[]), 0);
    }
}

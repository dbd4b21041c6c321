//! The playground at `/`: a page, its style and its scripts, embedded in the program.
//!
//! They are the same for everybody, so they need no key; the page asks for one, and its scripts send it with
//! what they request. Browsers run no other script and let the page send nothing anywhere else.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::get;

/// A file: its path, its type and its content.
type File = (&'static str, &'static str, &'static str);

const SCRIPT: &str = "text/javascript; charset=utf-8";

#[rustfmt::skip]
const FILES: &[File] = &[
    ("/", "text/html; charset=utf-8", include_str!("ui/index.html")),
    ("/ui/style.css", "text/css; charset=utf-8", include_str!("ui/style.css")),
    ("/ui/app.js", SCRIPT, include_str!("ui/app.js")),
    ("/ui/branches.js", SCRIPT, include_str!("ui/branches.js")),
    ("/ui/client.js", SCRIPT, include_str!("ui/client.js")),
    ("/ui/controls.js", SCRIPT, include_str!("ui/controls.js")),
    ("/ui/copy.js", SCRIPT, include_str!("ui/copy.js")),
    ("/ui/drafts.js", SCRIPT, include_str!("ui/drafts.js")),
    ("/ui/heat.js", SCRIPT, include_str!("ui/heat.js")),
    ("/ui/lanes.js", SCRIPT, include_str!("ui/lanes.js")),
    ("/ui/pane.js", SCRIPT, include_str!("ui/pane.js")),
    ("/ui/popover.js", SCRIPT, include_str!("ui/popover.js")),
    ("/ui/settings.js", SCRIPT, include_str!("ui/settings.js")),
    ("/ui/text.js", SCRIPT, include_str!("ui/text.js")),
];

/// The content security policy: nothing from other origins, no other scripts or styles, no markup from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // A newer rsgen at the same address has another page.
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Whether a path is one of the playground's.
pub(super) fn has(path: &str) -> bool {
    FILES.iter().any(|(own, ..)| *own == path)
}

/// The playground's routes.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(path, get(async move || (HEADERS, [(header::CONTENT_TYPE, kind)], content)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of all files together.
    const MAX_BYTES: usize = 80 << 10;

    #[test]
    fn the_page_is_small_and_every_file_of_its_folder_is_served() {
        let bytes: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/ui");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let names: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
        assert_eq!(names.len(), FILES.len());
        for name in names {
            assert!(has(&format!("/ui/{name}")) || name == "index.html", "{name}");
        }
    }

    #[test]
    fn the_scripts_make_no_markup_of_text_and_the_page_names_no_other_site() {
        for (path, _, content) in FILES {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!content.contains(word), "{path} has {word}");
            }
            // The name of a kind of element, not an address that is loaded.
            let content = content.replace("http://www.w3.org/2000/svg", "");
            for word in ["http://", "https://", " src=\"//", "@import", " style=\"", " onclick="] {
                assert!(!content.contains(word), "{path} has {word}");
            }
        }
    }
}

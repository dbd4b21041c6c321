//! The names by which browsers may call a server. A page of another site can point a name of its own at this
//! machine (DNS rebinding), but it cannot choose what the browser writes into `Host` and `Origin`.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, header};

use super::failure::Failure;
use super::options::ServeOptions;
use rsgen_core::error::Result;

/// The hosts that requests may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    /// Any: the key decides, or the service that the routes are mounted in.
    Any,
    /// Addresses, `localhost` and these names, in lower case. `remedy` says what else to do.
    Known { names: Vec<String>, remedy: String },
}

impl Rule {
    /// A local server is protected by its address alone, so names are checked even if there is a key. `url`
    /// is the server's address, if it has one of its own.
    pub(super) fn of(options: &ServeOptions, is_local: bool, url: Option<&str>) -> Self {
        let names: Vec<String> = options.allowed_hosts.iter().map(|name| name.to_ascii_lowercase()).collect();
        if !is_local && names.is_empty() && !options.api_keys.is_empty() {
            return Self::Any;
        }
        let call = url.map_or(String::new(), |url| format!("call it at {url}, or "));
        Self::Known { names, remedy: format!("{call}start it with this name in `allowed_hosts`") }
    }

    /// Refuses requests that a page of another site may have sent. CORS may allow the pages of its origin.
    pub(super) fn check(&self, headers: &HeaderMap, is_allowed_origin: bool) -> Result<(), Failure> {
        let Self::Known { names, remedy } = self else { return Ok(()) };
        let text =
            |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().to_ascii_lowercase());
        let given = text(header::HOST).unwrap_or_default();
        let host = without_port(&given);
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let is_named = |host: &str| names.iter().any(|name| name == host);
        if !is_address && host != "localhost" && !is_named(host) {
            return Err(refused(format!(
                "the header `host` must be an address, localhost or an allowed host of this server, but is {given:?}; \
                 {remedy}"
            )));
        }
        let Some(origin) = text(header::ORIGIN).filter(|_| !is_allowed_origin) else { return Ok(()) };
        let of_origin = origin.split_once("://").map_or("", |(_, rest)| without_port(rest));
        if of_origin != host && !is_named(of_origin) {
            return Err(refused(format!(
                "pages of {origin:?} may not call this server; {remedy}, or with this origin in `cors_origin`"
            )));
        }
        Ok(())
    }
}

fn refused(message: String) -> Failure {
    Failure::refused(StatusCode::FORBIDDEN, "host_not_allowed", message)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rule: &Rule, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        rule.check(&headers, false).is_ok()
    }

    #[test]
    fn only_known_names_and_addresses_are_hosts_and_origins() {
        let options = ServeOptions { allowed_hosts: vec!["Model.Lan".to_owned()], ..ServeOptions::default() };
        let rule = Rule::of(&options, true, None);
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:8000",
            "[::1]:8000",
            "[::1]",
            "model.lan:80",
            "192.168.0.7",
        ] {
            assert!(allows(&rule, host, None), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "evil.example:8000",
            "model.lan.evil",
        ] {
            assert!(!allows(&rule, host, None), "{host}");
        }
        assert!(rule.check(&HeaderMap::new(), false).is_err());
        let host = "localhost:8000";
        for origin in ["http://localhost:8000", "http://localhost:3000", "https://model.lan"] {
            assert!(allows(&rule, host, Some(origin)), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://127.0.0.1:8000",
            "https://localhost.evil",
            "localhost",
        ] {
            assert!(!allows(&rule, host, Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_key_allows_any_host_name_unless_the_server_is_local() {
        let mut options =
            ServeOptions { api_keys: vec![super::super::Secret::new("k")], ..ServeOptions::default() };
        assert_eq!(Rule::of(&options, false, None), Rule::Any);
        assert!(!allows(&Rule::of(&options, true, None), "evil.example", None));
        options.api_keys.clear();
        assert!(!allows(&Rule::of(&options, false, None), "evil.example", None));
    }
}

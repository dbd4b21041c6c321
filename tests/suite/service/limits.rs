//! Limits of time, size and number.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rsgen::serve::ServeOptions;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_full_server_refuses_at_once_and_says_when_to_come_again() {
    let service = Service::new(patient_model(), ServeOptions { max_requests: 1, max_queue: 1, ..options() });
    let mut running = events(service.post(&stream_of(PROMPT, 60_000)));
    running.next().unwrap();
    let waiting = sent(service.address(), &request_text(&stream_of(PROMPT, 2).to_string()));
    while service.metric("rsgen_requests_waiting") < 1.0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // What a busy machine takes for a request that does nothing.
    let mut idle = Vec::new();
    let mut times = Vec::new();
    for _ in 0..50 {
        let begin = Instant::now();
        assert_eq!(service.get("/health", &[]).0, 200);
        idle.push(begin.elapsed());
        let begin = Instant::now();
        let mut response = service.post(&stream_of(PROMPT, 2));
        times.push(begin.elapsed());
        assert_eq!(response.status(), 503);
        let seconds: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        let milliseconds: u64 = response.headers()["retry-after-ms"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds) && milliseconds.div_ceil(1000) == seconds);
        assert_eq!(response.headers()["x-should-retry"], "true");
        let answer: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], "server_overloaded");
    }
    idle.sort_unstable();
    times.sort_unstable();
    assert!(times[25] < Duration::from_millis(5) + 4 * idle[25], "{times:?}, {idle:?}");
    assert_eq!(service.metric("rsgen_admission_rejections_total{reason=\"queue_full\"}"), 50.0);
    drop(running);
    let mut answer = String::new();
    BufReader::new(waiting).read_line(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "who waits has its turn: {answer}");
}

#[test]
fn a_flood_of_refused_requests_and_slow_connections_hold_up_nobody_who_is_served() {
    let service = Service::new(patient_model(), ServeOptions { max_requests: 1, max_queue: 0, ..options() });
    let mut running = events(service.post(&stream_of(PROMPT, 60_000)));
    running.next().unwrap();
    let slow: Vec<TcpStream> = (0..200).map(|_| sent(service.address(), HALF_A_HEAD)).collect();
    let (done, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let slowest = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(service.post(&stream_of(PROMPT, 2)).status(), 503);
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let gap = |_| {
            let begin = Instant::now();
            assert!(running.next().unwrap().contains("text"));
            begin.elapsed()
        };
        let slowest = (0..30).map(gap).max();
        while refused.load(Ordering::Relaxed) < 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        slowest.unwrap()
    });
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert_eq!(slow.len(), 200);
}

#[test]
fn a_request_waits_for_its_turn_for_a_limited_time() {
    let patience = Duration::from_millis(30);
    let limits = ServeOptions { max_requests: 1, queue_timeout: patience, ..options() };
    let service = Service::new(patient_model(), limits);
    let mut running = events(service.post(&stream_of(PROMPT, 60_000)));
    running.next().unwrap();
    assert_eq!(service.post(&stream_of(PROMPT, 2)).status(), 503);
    assert_eq!(service.metric("rsgen_admission_rejections_total{reason=\"queue_timeout\"}"), 1.0);
    assert_eq!(service.metric("rsgen_requests_waiting"), 0.0);
}

#[test]
fn heads_bodies_and_idle_connections_have_time_limits() {
    let soon = Duration::from_millis(60);
    let limits =
        ServeOptions { header_timeout: soon, body_timeout: soon, idle_timeout: 2 * soon, ..options() };
    let service = Service::bundled(limits);
    let begin = Instant::now();
    let live = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let next_head = format!("{live}{live}GET /he");
    for (bytes, answers) in [("", 0), (HALF_A_HEAD, 0), (HALF_A_BODY, 1), (live, 1), (&next_head, 2)] {
        let mut text = String::new();
        sent(service.address(), bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("HTTP/1.1 ").count(), answers, "{text}");
        assert_eq!(text.contains("408 Request Timeout"), bytes == HALF_A_BODY, "{text}");
    }
    assert!(begin.elapsed() < LATEST);
    // A head that dribbles has one limit for the whole.
    let mut dribbling = sent(service.address(), "GET /");
    let begin = Instant::now();
    while dribbling.write_all(b"x").is_ok() {
        assert!(begin.elapsed() < LATEST, "it may dribble for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    let seconds = Duration::from_secs;
    let defaults = ServeOptions::default();
    assert_eq!((defaults.header_timeout, defaults.body_timeout), (seconds(10), seconds(30)));
    assert_eq!((defaults.idle_timeout, defaults.write_timeout), (seconds(75), seconds(30)));
    assert_eq!(defaults.max_connections, 1024);
}

#[test]
fn a_head_has_at_most_64_kilobytes_and_100_lines() {
    let service = Service::bundled(options());
    let status = |head: &str| {
        let mut answer = String::new();
        let request =
            format!("GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n");
        let _ = sent(service.address(), &request).read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status("X: 1\r\n"), "200");
    assert_eq!(status(&format!("X: {}\r\n", "x".repeat(70 << 10))), "431");
    assert_eq!(status(&"X: 1\r\n".repeat(101)), "431");
}

#[test]
fn the_longest_idle_of_too_many_connections_is_closed_and_clients_are_served() {
    let service = Service::bundled(ServeOptions { max_connections: 8, ..options() });
    let first = sent(service.address(), HALF_A_HEAD);
    let kinds = [HALF_A_HEAD, HALF_A_BODY, ""];
    let others: Vec<TcpStream> = (0..40).map(|index| sent(service.address(), kinds[index % 3])).collect();
    let mut answer = String::new();
    let _ = { first }.read_to_string(&mut answer);
    assert_eq!(answer, "");
    for _ in 0..3 {
        assert!(!text_of(events(service.post(&stream_of(PROMPT, 3)))).is_empty());
    }
    drop(others);
}

#[test]
fn bodies_that_do_not_end_take_bounded_memory_and_hold_up_no_ordinary_request() {
    let service = Service::bundled(ServeOptions { max_bodies_bytes: 0, ..options() });
    let head =
        format!("{HALF_A_HEAD}Content-Type: application/json\r\nContent-Length: 1900000\r\n\r\n{{\"prompt\"");
    let half = head + &" ".repeat(1_800_000);
    // Sixty of them are beyond the 64 MiB that there are at least.
    let unfinished: Vec<TcpStream> = (0..60).map(|_| sent(service.address(), &half)).collect();
    let refused = "rsgen_admission_rejections_total{reason=\"bodies\"}";
    let begin = Instant::now();
    while service.metric(refused) < 20.0 {
        assert!(begin.elapsed() < LATEST, "{}", service.metric(refused));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!text_of(events(service.post(&stream_of(PROMPT, 3)))).is_empty(), "a short body is taken");
    let mut long = stream_of(PROMPT, 3);
    long["user_data"] = "x".repeat(1_500_000).into();
    assert_eq!(service.post(&long).status(), 503);
    drop(unfinished);
    while service.post(&long).status() != 200 {
        assert!(begin.elapsed() < 2 * LATEST, "the memory is given back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_slow_sender_goes_on_by_its_rate_and_not_by_any_progress() {
    let service = Service::bundled(ServeOptions { body_timeout: Duration::from_millis(300), ..options() });
    let body = json!({ "prompt": PROMPT, "max_tokens": 1, "padding": "x".repeat(120_000) }).to_string();
    for (at_once, status) in [(1200, "200 OK"), (5, "408 Request Timeout")] {
        let (mut connection, text) = (sent(service.address(), ""), request_text(&body));
        let begin = Instant::now();
        for bytes in text.as_bytes().chunks(at_once) {
            if connection.write_all(bytes).is_err() || begin.elapsed() > LATEST {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut answer = String::new();
        BufReader::new(connection).read_line(&mut answer).unwrap();
        assert!(answer.contains(status), "{at_once} bytes at once: {answer}");
        assert!(begin.elapsed() > Duration::from_millis(300));
    }
}

#[test]
fn clients_that_read_nothing_are_given_up_and_counted_as_slow_readers() {
    let limits = ServeOptions { write_timeout: Duration::from_millis(200), ..options() };
    let service = Service::new(patient_model(), limits);
    let mut body = stream_of(PROMPT, 60_000);
    body["logprobs"] = 20.into();
    let unread: Vec<TcpStream> =
        (0..3).map(|_| sent(service.address(), &request_text(&body.to_string()))).collect();
    let given_up = || service.metric("rsgen_cancelled_total{cause=\"slow_reader\"}");
    let begin = Instant::now();
    while given_up() < 3.0 {
        assert!(begin.elapsed() < 6 * LATEST, "{} are given up", given_up());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(service.metric("rsgen_cancelled_total{cause=\"client\"}"), 0.0);
    assert!(service.metric("rsgen_generation_tokens_total") < 3.0 * 10_000.0);
    service.wait_until_all_is_free();
    drop(unread);
}

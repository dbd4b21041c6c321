//! Limits of time, size and number.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rsgen::serve::ServeOptions;
use serde_json::Value;

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
    let mut times = Vec::new();
    for _ in 0..50 {
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
    times.sort_unstable();
    assert!(times[25] < Duration::from_millis(10), "{times:?}");
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

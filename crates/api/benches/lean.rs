//! What one pod costs in memory and time, beside `k8s-openapi`'s. Prints a line for each figure,
//! `name<TAB>ours<TAB>theirs<TAB>limit`, and fails when ours is over its limit.

#![allow(clippy::unwrap_used, reason = "nobody but a developer runs this")]

use std::alloc::System;
use std::hint::black_box;
use std::process::{Command, ExitCode};

use crablet_api::core::Pod;
use crablet_api::document::Limits;
use crablet_api::from_json;
use serde::de::DeserializeOwned;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type TheirPod = k8s_openapi::api::core::v1::Pod;

/// Two containers with eight variables and two probes each, three volumes, and a full status.
const POD: &str = include_str!("pod.json");

const PODS: usize = 500;
const RUNS: usize = 5;

fn main() -> ExitCode {
    // Given a kind of pod, this is a child that measures its own growth.
    match std::env::args().nth(1).as_deref() {
        Some("ours") => return print_growth::<Pod>(),
        Some("theirs") => return print_growth::<TheirPod>(),
        _ => {}
    }
    let json = compact();
    let figures = [
        ("pod_heap_bytes", heap::<Pod>(&json), heap::<TheirPod>(&json), 10_000.0),
        ("pod_decode_microseconds", decode_time::<Pod>(&json), decode_time::<TheirPod>(&json), 60.0),
        ("500_pods_rss_bytes", growth("ours"), growth("theirs"), 6_000_000.0),
    ];
    let mut code = ExitCode::SUCCESS;
    for (name, ours, theirs, limit) in figures {
        println!("{name}\t{ours:.1}\t{theirs:.1}\t{limit}");
        if ours > limit {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// As an API server sends it: without white space, but with the fields in Kubernetes' order.
fn compact() -> Vec<u8> {
    POD.lines().flat_map(|line| line.trim_start().replace("\": ", "\":").into_bytes()).collect()
}

/// The heap that one pod holds, with itself on it.
fn heap<T: DeserializeOwned>(json: &[u8]) -> f64 {
    let region = Region::new(ALLOCATOR);
    let pod: Box<T> = Box::new(from_json(json, Limits::API).unwrap());
    let change = region.change();
    drop(black_box(pod));
    change.bytes_allocated as f64 - change.bytes_deallocated as f64
}

/// The median time to decode one pod.
#[allow(clippy::disallowed_types, reason = "real time is what is measured")]
fn decode_time<T: DeserializeOwned>(json: &[u8]) -> f64 {
    let mut times: Vec<f64> = (0..2000)
        .map(|_| {
            let start = std::time::Instant::now();
            let pod: T = from_json(black_box(json), Limits::API).unwrap();
            let time = start.elapsed();
            drop(black_box(pod));
            time.as_secs_f64() * 1e6
        })
        .collect();
    median(&mut times)
}

/// By how much 500 pods make a process grow; the median of several processes.
fn growth(kind: &str) -> f64 {
    let mut growths: Vec<f64> = (0..RUNS)
        .map(|_| {
            let output = Command::new(std::env::current_exe().unwrap()).arg(kind).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        })
        .collect();
    median(&mut growths)
}

fn print_growth<T: DeserializeOwned>() -> ExitCode {
    let json = compact();
    drop(black_box::<T>(from_json(&json, Limits::API).unwrap()));
    let before = resident_bytes();
    let pods: Vec<Box<T>> = (0..PODS).map(|_| Box::new(from_json(&json, Limits::API).unwrap())).collect();
    println!("{}", resident_bytes() - before);
    drop(black_box(pods));
    ExitCode::SUCCESS
}

fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<i64>().unwrap() * 1024
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

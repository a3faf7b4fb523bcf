//! A real kube-apiserver, asked with curl.

use std::process::Command;

use crate::{Asked, Body, Server};

#[path = "../common/real.rs"]
mod process;

pub use process::Real;

impl Server for Real {
    fn ask(&mut self, asked: &Asked) -> (u16, Body) {
        try_to_ask(self, asked).unwrap_or_else(|| panic!("no answer to {} {}", asked.method, asked.path))
    }
}

fn try_to_ask(server: &Real, asked: &Asked) -> Option<(u16, Body)> {
    let query = if asked.query.is_empty() { String::new() } else { format!("?{}", asked.query) };
    let url = format!("https://127.0.0.1:{}{}{query}", server.port, asked.path);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--globoff", "--path-as-is", "--max-time", "30", "--cacert", "ca.crt"]);
    curl.args(["--cert", "admin.crt", "--key", "admin.key", "--request", &asked.method, &url]);
    curl.args(["--write-out", "\n%{http_code}"]);
    let has = |name: &str| asked.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
    for (name, value) in &asked.headers {
        curl.args(["--header", &format!("{name}: {value}")]);
    }
    if !has("Accept") {
        curl.args(["--header", "Accept: application/json"]);
    }
    if !has("Content-Type") {
        curl.args(["--header", "Content-Type: application/json"]);
    }
    if !asked.body.is_empty() {
        curl.args(["--data-binary", &asked.body]);
    }
    let output = curl.current_dir(server.path("")).output().unwrap();
    let text = String::from_utf8(output.stdout).ok()?;
    let (body, code) = text.rsplit_once('\n')?;
    let code: u16 = code.parse().ok().filter(|code| *code != 0)?;
    if asked.query.contains("watch=") && code == 200 {
        return Some((
            code,
            Body::Lines(body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()),
        ));
    }
    let body = match serde_json::from_str(body) {
        Ok(json) if body.trim_start().starts_with(['{', '[']) => Body::Json(json),
        Ok(_) | Err(_) => Body::Text(body.trim_end().to_owned()),
    };
    Some((code, body))
}

//! A browser that is driven through its DevTools: it loads pages, runs expressions in them, and
//! takes pictures.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::tools::{command, curl, output};

/// How long a page may take to become what a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A page in a browser of its own.
pub(crate) struct Page {
    browser: Child,
    runtime: Runtime,
    socket: WebSocketStream<TcpStream>,
    /// Requests so far.
    count: u64,
    _profile: tempfile::TempDir,
}

impl Page {
    /// Starts a browser, with an empty page of that size.
    pub(crate) fn new(width: u32, height: u32) -> Page {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = command("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        browser.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        browser.args(["--disable-component-update", "--disable-dev-shm-usage"]);
        browser.args(["--remote-debugging-port=0", &format!("--window-size={width},{height}")]);
        browser.env("HOME", profile.path()).env("XDG_RUNTIME_DIR", profile.path());
        browser.arg(format!("--user-data-dir={}", profile.path().display()));
        browser.arg("about:blank").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut browser = browser.spawn().unwrap();
        let mut lines = BufReader::new(browser.stderr.take().unwrap()).lines();
        let at = lines
            .find_map(|line| {
                let line = line.unwrap();
                let at = line.strip_prefix("DevTools listening on ws://")?;
                Some(at.split('/').next().unwrap().to_owned())
            })
            .unwrap();
        // Nobody else reads what it says; it is not to wait for that.
        std::thread::spawn(move || lines.for_each(drop));
        let pages: Value =
            serde_json::from_str(&output(&mut curl(&format!("http://{at}/json/list")))).unwrap();
        let is_page = |target: &&Value| target["type"] == "page";
        let page = pages.as_array().unwrap().iter().find(is_page).unwrap();
        let url = page["webSocketDebuggerUrl"].as_str().unwrap().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = runtime.block_on(async {
            let stream = TcpStream::connect(&at).await.unwrap();
            tokio_tungstenite::client_async(url, stream).await.unwrap().0
        });
        Page { browser, runtime, socket, count: 0, _profile: profile }
    }

    /// Makes a request of the DevTools' protocol, and returns its result.
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.count += 1;
        let id = self.count;
        let request = json!({ "id": id, "method": method, "params": parameters }).to_string();
        let socket = &mut self.socket;
        self.runtime.block_on(async {
            socket.send(Message::text(request)).await.unwrap();
            loop {
                let message = socket.next().await.unwrap().unwrap();
                let Ok(text) = message.into_text() else { continue };
                let mut answer: Value = serde_json::from_str(&text).unwrap_or_default();
                if answer["id"] == id {
                    assert!(answer["error"].is_null(), "{method}: {answer}");
                    return answer["result"].take();
                }
            }
        })
    }

    /// Loads a page.
    pub(crate) fn load(&mut self, url: &str) {
        let loaded = self.ask("Page.navigate", &json!({ "url": url }));
        assert!(loaded["errorText"].is_null(), "{loaded}");
    }

    /// Shows pages as somebody sees them who prefers this: `light` or `dark`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.ask("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let what = json!({ "expression": expression, "returnByValue": true });
        let mut found = self.ask("Runtime.evaluate", &what);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].take()
    }

    /// Waits until an expression in the page is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.evaluate(expression) != true {
            if Instant::now() > end {
                let page = self.evaluate("document.body.innerText");
                panic!("not so: {expression}\n{}", page.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A picture of what is shown, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let taken = self.ask("Page.captureScreenshot", &json!({ "format": "png" }));
        STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

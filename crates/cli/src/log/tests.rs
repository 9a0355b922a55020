use super::*;

fn access() -> Record {
    let peer = "192.0.2.1:5".parse().unwrap();
    Record::Access(Box::new(Access::new(peer, "GET /a HTTP/1.1".into())))
}

fn human(time: SystemTime, record: &Record) -> String {
    super::human(time, record)
}

#[test]
fn fields_of_our_own_stand_behind_combined_if_asked_for() {
    let Record::Access(access) = access() else { unreachable!() };
    let line = |form: &Form| of_request(SystemTime::UNIX_EPOCH, &access, form);
    let fields = line(&Form::FIELDS);
    let combined = line(&Form::COMBINED);
    assert!(fields.starts_with(&combined) && fields.contains(" port=5 "), "{fields}");
}

#[test]
fn programs_read_one_object() {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(2);
    let line = machine(time, &access());
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(!line.contains('\n'));
    assert_eq!((&value["event"], &value["time_s"]), (&json!("access"), &json!(2.0)));
}

#[test]
fn what_is_wrong_with_closed_connections_is_told_to_both() {
    let time = SystemTime::UNIX_EPOCH;
    let filling = |kind| Concern::Filling { kind, held: 8, limit: 10 };
    let full = |kind| Concern::Full { kind, evicted: 8, held: 10 };
    let concerns = [
        (filling(Kind::TimeWait), "time_wait_filling"),
        (filling(Kind::FinWait2), "fin_wait_2_filling"),
        (full(Kind::TimeWait), "time_wait_full"),
        (full(Kind::FinWait2), "fin_wait_2_full"),
        (Concern::Unheard { segments: 8 }, "fin_wait_2_unheard"),
        (Concern::Refused { syns: 8 }, "time_wait_refused"),
        (Concern::PortsScarce { passed: 8, opens: 10 }, "ports_in_time_wait"),
        (Concern::NoPort { opens: 8 }, "ports_exhausted"),
        (Concern::MemoryShort { resets: 8, slow: 0, closed: 0, refused: 0 }, "memory_short"),
    ];
    for (concern, event) in concerns {
        let record = Record::Closed(concern);
        let line = human(time, &record);
        assert!(line.contains(" 8 "), "{line}");
        let value: Value = serde_json::from_str(&machine(time, &record)).unwrap();
        assert_eq!(value["event"], json!(event));
        assert!(value.as_object().unwrap().values().any(|number| *number == json!(8)));
    }
}

#[test]
fn why_memory_was_short_is_told_by_cause() {
    let short = |[resets, slow, closed, refused]: [u64; 4]| {
        let concern = Concern::MemoryShort { resets, slow, closed, refused };
        human(SystemTime::UNIX_EPOCH, &Record::Closed(concern))
    };
    let line = short([0, 3, 0, 0]);
    assert!(line.contains("3 connections reset whose peers took too little"), "{line}");
    assert!(!line.contains("no data") && !line.contains("refused"), "{line}");
    let line = short([1, 0, 2, 4]);
    assert!(line.contains("1 connection reset whose peers took no data"), "{line}");
    let rest = "2 connections closed that waited for a request, 4 connections refused.";
    assert!(line.ends_with(rest), "{line}");
}

#[test]
fn a_conflict_is_told_with_whoever_has_the_address() {
    let time = SystemTime::UNIX_EPOCH;
    for kept in [false, true] {
        let (address, claimant) = ("fd00::2".parse().unwrap(), [2, 0, 0, 0, 0xab, 1]);
        let record = Record::Conflict(Conflict { address, claimant, kept });
        let line = human(time, &record);
        assert!(line.contains(" Warning: 02:00:00:00:ab:01 ") && line.contains("fd00::2"));
        assert_eq!(line.contains("We keep it"), kept);
        let value: Value = serde_json::from_str(&machine(time, &record)).unwrap();
        assert_eq!(value["event"], json!("address_conflict"));
        assert_eq!((&value["address"], &value["kept"]), (&json!("fd00::2"), &json!(kept)));
    }
}

#[test]
fn one_is_one_and_two_are_many() {
    let line = |record| human(SystemTime::UNIX_EPOCH, &record);
    for (connections, words) in [(1, " 1 connection may"), (2, " 2 connections may")] {
        assert!(line(Record::Stopping { connections }).contains(words));
    }
    let cut = line(Record::Stopped { unfinished: 1 });
    assert_eq!(cut, "1970-01-01T00:00:00Z Stopped; cut short: 1 connection.");
}

#[test]
fn files_that_were_moved_are_opened_again_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name| directory.path().join(name);
    let outputs = Outputs::new(io::sink(), io::sink());
    let to = AccessOutput::File(at("access"));
    let outputs = outputs.with_files(Some(&at("log")), Some(&to)).unwrap();
    let (log, writer) = Log::start(Form::COMBINED, outputs).unwrap();
    let both = |text: &str| {
        log.write(Record::Trouble { text: text.to_owned() });
        log.write(access());
    };
    let read = |name| std::fs::read_to_string(at(name)).unwrap_or_default();
    both("before");
    while !(read("log").contains("before") && read("access").contains("GET")) {
        std::thread::yield_now();
    }
    for name in ["log", "access"] {
        std::fs::rename(at(name), at(name).with_extension("1")).unwrap();
    }
    log.reopen();
    both("after");
    drop(log);
    writer.finish();
    for (name, words) in
        [("log.1", "before"), ("log", "after"), ("access.1", "GET"), ("access", "GET")]
    {
        let text = read(name);
        assert!(text.contains(words) && text.lines().count() == 1, "{name}: {text}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_again_is_written_on() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("sub/log"), directory.path().join("moved"));
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let outputs = Outputs::new(io::sink(), io::sink()).with_files(Some(&path), None).unwrap();
    let (log, writer) = Log::start(Form::COMBINED, outputs).unwrap();
    std::fs::rename(path.parent().unwrap(), &moved).unwrap();
    log.reopen();
    log.write(Record::Trouble { text: "after".to_owned() });
    drop(log);
    writer.finish();
    let text = std::fs::read_to_string(moved.join("log")).unwrap();
    assert!(text.contains("cannot be opened again") && text.contains("after"), "{text}");
}

#[test]
fn everything_is_written_before_the_end() {
    let page = Page::default();
    let (log, writer) = Log::start(Form::COMBINED, Outputs::new(page.clone(), io::sink())).unwrap();
    for _ in 0..100 {
        log.write(access());
    }
    drop(log);
    writer.finish();
    assert_eq!(page.text().lines().count(), 100);
}

#[test]
fn a_writer_that_stands_still_stops_nobody_and_the_loss_is_told() {
    let page = Page::default();
    let (log, writer) = Log::start(Form::JSON, Outputs::new(page.clone(), io::sink())).unwrap();
    let held = page.0.lock().unwrap();
    for _ in 0..3 * WAITING_LINES {
        log.write(access());
    }
    let losses = log.losses();
    drop(held);
    drop(log);
    writer.finish();
    let text = page.text();
    let written = text.matches("\"event\":\"access\"").count();
    let lost = losses.lines() as usize;
    assert_eq!(written + lost, 3 * WAITING_LINES);
    assert!(lost > WAITING_LINES, "{lost}");
    assert!(text.contains(&format!("\"lines\":{lost}")), "{lost}");
}

#[test]
fn lines_that_a_full_disk_refuses_are_counted() {
    let to = AccessOutput::File("/dev/full".into());
    let outputs = Outputs::new(io::sink(), io::sink()).with_files(None, Some(&to)).unwrap();
    let (log, writer) = Log::start(Form::COMBINED, outputs).unwrap();
    let losses = log.losses();
    for _ in 0..100 {
        log.write(access());
    }
    drop(log);
    writer.finish();
    assert_eq!(losses.lines(), 100);
}

#[test]
fn requests_have_a_form_and_an_output_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let journal = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let to: AccessOutput = format!("journald:{}", path.display()).parse().unwrap();
    let page = Page::default();
    let outputs = Outputs::new(page.clone(), io::sink()).with_files(None, Some(&to)).unwrap();
    let requests = "$remote_addr $status".parse().unwrap();
    let (log, writer) = Log::start(Form { is_json: true, requests }, outputs).unwrap();
    log.write(access());
    log.write(Record::Trouble { text: "x".to_owned() });
    drop(log);
    writer.finish();
    let mut datagram = [0; 1000];
    let len = journal.recv(&mut datagram).unwrap();
    assert!(datagram[..len].ends_with(b"192.0.2.1 200\n"));
    assert!(page.text().contains(r#""event":"trouble""#) && page.text().lines().count() == 1);
}

#[test]
fn a_form_and_an_output_are_words_or_more() {
    assert_eq!("fields".parse(), Ok(Requests::Fields));
    let fault = "apache".parse::<Requests>().unwrap_err();
    assert!(fault.starts_with("give combined, fields, json"), "{fault}");
    assert!("$statsu".parse::<Requests>().unwrap_err().contains("did you mean $status?"));
    assert_eq!("-".parse(), Ok(AccessOutput::Stdout));
    assert_eq!("a/journald".parse(), Ok(AccessOutput::File("a/journald".into())));
    assert!("journald:".parse::<AccessOutput>().is_err());
}

use super::*;

#[test]
fn a_socket_appears_with_its_mode_and_no_other_file_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("takeover.sock");
    let first = listen(&path, false).unwrap();
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), MODE);
    assert!(UnixStream::connect(&path).is_ok());
    assert!(listen(&path, false).is_err(), "somebody else has begun meanwhile");
    drop(first);
    let error = UnixStream::connect(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    drop(listen(&path, true).unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    assert!(listen(&path, true).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"a file");
}

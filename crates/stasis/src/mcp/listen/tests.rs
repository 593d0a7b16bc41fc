use super::*;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as Blocking;

fn own() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn open(path: &Path) -> anyhow::Result<Socket> {
    Socket::open(&format!("unix:{}", path.display()).parse().unwrap())
}

#[test]
fn an_address_is_a_path_of_a_socket() {
    for bad in ["", "unix:", "tcp:1", "/run/x", "127.0.0.1:80"] {
        assert!(bad.parse::<Address>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_socket_is_for_its_owner_only_and_goes_when_we_go() {
    let own = own();
    let path = own.path().join("s");

    let socket = open(&path).unwrap();

    let made = std::fs::symlink_metadata(&path).unwrap();
    assert!(made.file_type().is_socket());
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    drop(socket);
    assert!(!path.exists());
}

#[tokio::test]
async fn what_is_there_and_is_no_socket_stays() {
    let own = own();
    let path = own.path().join("s");
    #[expect(clippy::disallowed_methods, reason = "a file that is in the way")]
    std::fs::write(&path, "precious").unwrap();

    let refused = open(&path).unwrap_err();

    assert!(refused.to_string().contains("is no socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_socket_that_nobody_answers_at_is_replaced() {
    let own = own();
    let path = own.path().join("s");
    drop(Blocking::bind(&path).unwrap());
    let old = std::fs::symlink_metadata(&path).unwrap().ino();

    let _socket = open(&path).unwrap();

    assert!(
        std::os::unix::net::UnixStream::connect(&path).is_ok(),
        "{old}"
    );
}

#[tokio::test]
async fn somebody_who_listens_is_not_replaced() {
    let own = own();
    let path = own.path().join("s");
    let _other = Blocking::bind(&path).unwrap();

    let refused = open(&path).unwrap_err();

    assert!(refused.to_string().contains("listens"), "{refused}");
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
}

#[tokio::test]
async fn a_directory_that_others_write_to_is_no_place_for_a_socket() {
    let own = own();
    std::fs::set_permissions(own.path(), std::fs::Permissions::from_mode(0o777)).unwrap();

    let refused = open(&own.path().join("s")).unwrap_err();

    assert!(refused.to_string().contains("no place"), "{refused}");
}

use super::*;

const HANDLE: &[u8] = b"\x81\0\0\0inode+gen";

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + body.len()).unwrap();
    [&[kind, 0], &length.to_ne_bytes()[..], body].concat()
}

fn named(kind: u8, name: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HANDLE.len() - 4).unwrap();
    let body = [b"fsid8888", &length.to_ne_bytes()[..], HANDLE, name].concat();
    record(kind, &body)
}

fn a_notice(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let length = u32::try_from(HEAD + records.len()).unwrap();
    let head = u16::try_from(HEAD).unwrap().to_ne_bytes();
    let numbers = [0xFF; 8];
    let (length, mask) = (length.to_ne_bytes(), mask.to_ne_bytes());
    [&length[..], &[VERSION, 0], &head, &mask, &numbers, &records].concat()
}

fn read(bytes: &[u8]) -> Vec<Result<Notice<'_>, Torn>> {
    Notices(bytes).collect()
}

fn told(mask: u64, name: &'static [u8]) -> Notice<'static> {
    let directory = HANDLE;
    let place = Some(Place { directory, name });
    Notice { mask, place }
}

#[test]
fn notices_are_read_one_after_the_other() {
    let bytes = [
        a_notice(1, &[named(DIRECTORY_AND_NAME, b"file\0\0\0\0")]),
        a_notice(2, &[]),
        a_notice(3, &[named(DIRECTORY, b"")]),
        a_notice(4, &[named(DIRECTORY_AND_NAME, b".\0")]),
    ]
    .concat();

    let nowhere = Ok(Notice {
        mask: 2,
        place: None,
    });
    let expected = [
        Ok(told(1, b"file")),
        nowhere,
        Ok(told(3, b"")),
        Ok(told(4, b".")),
    ];
    assert_eq!(read(&bytes), expected);
    let itself = |one: &Result<Notice<'_>, Torn>| one.unwrap().place.unwrap().is_directory_itself();
    assert!(!itself(&expected[0]) && itself(&expected[2]) && itself(&expected[3]));
    assert_eq!(read(b""), []);
}

#[test]
fn records_that_are_not_known_are_passed_over() {
    let records = [
        record(1, b"another inode"),
        record(200, b""),
        named(DIRECTORY_AND_NAME, b"file\0"),
        record(4, b"1234"),
    ];

    assert_eq!(read(&a_notice(7, &records)), [Ok(told(7, b"file"))]);
}

#[test]
fn a_longer_head_is_a_later_kernel_and_no_mistake() {
    let mut bytes = a_notice(7, &[named(DIRECTORY_AND_NAME, b"file\0")]);
    bytes.splice(HEAD..HEAD, [9; 8]);
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[6..8].copy_from_slice(&32_u16.to_ne_bytes());

    assert_eq!(read(&bytes), [Ok(told(7, b"file"))]);
}

#[test]
fn a_buffer_that_ends_too_early_is_torn_wherever_that_is() {
    let whole = a_notice(1, &[named(DIRECTORY_AND_NAME, b"one\0")]);
    let bytes = [
        whole.clone(),
        a_notice(2, &[record(1, b"x"), named(DIRECTORY_AND_NAME, b"two\0")]),
    ]
    .concat();

    for end in whole.len() + 1..bytes.len() {
        assert_eq!(
            read(&bytes[..end]),
            [Ok(told(1, b"one")), Err(Torn)],
            "at {end}"
        );
    }
}

#[test]
fn lengths_that_lie_are_torn_and_never_read_past() {
    let whole = a_notice(1, &[named(DIRECTORY_AND_NAME, b"one\0")]);
    let lies: [(usize, &[u8]); 9] = [
        (0, &[0, 0, 0, 0]),                 // a notice without length
        (0, &[23, 0, 0, 0]),                // shorter than its head
        (0, &[0xFF; 4]),                    // longer than everything
        (4, &[VERSION + 1]),                // another version
        (6, &[23, 0]),                      // a head that is too short
        (6, &[0xFF; 2]),                    // a head beyond its end
        (HEAD + 2, &[0, 0]),                // a record without length
        (HEAD + 2, &[0xFF; 2]),             // a record beyond its end
        (HEAD + BEFORE_HANDLE, &[0xFF; 4]), // a handle beyond its end
    ];
    for (place, lie) in lies {
        let mut bytes = whole.clone();
        bytes[place..place + lie.len()].copy_from_slice(lie);
        assert_eq!(read(&bytes), [Err(Torn)], "{lie:?} at {place}");
    }
    let endless = a_notice(1, &[named(DIRECTORY_AND_NAME, b"no end")]);
    assert_eq!(read(&endless), [Err(Torn)]);
}

#[test]
fn no_byte_that_is_another_one_makes_it_fail() {
    let whole = [
        a_notice(1, &[named(DIRECTORY_AND_NAME, b"one\0")]),
        a_notice(2, &[named(DIRECTORY, b"")]),
    ]
    .concat();
    for at in 0..whole.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert!((1..=2).contains(&read(&bytes).len()), "{value} at {at}");
        }
    }
}

//! The protocol: requests whole, in pieces and malformed; replies as the crate reads them.

use neap_kv::reply::Reply;
use neap_kv::request::*;
use proptest::prelude::*;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

const MAX_REQUEST: usize = 1 << 20;

/// The arguments of the request at the start of `bytes`, and its length.
fn whole(bytes: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut parser = Parser::new(MAX_REQUEST);
    match parser.advance(bytes) {
        Ok(Progress::Request(length)) => {
            let arguments = parser.arguments(bytes);
            (arguments.from(0).map(<[u8]>::to_vec).collect(), length)
        }
        other => panic!("{other:?} for {:?}", bytes.escape_ascii().to_string()),
    }
}

fn error(bytes: &[u8]) -> ProtocolError {
    let mut parser = Parser::new(MAX_REQUEST);
    let outcome = parser.advance(bytes);
    outcome.expect_err(&bytes.escape_ascii().to_string())
}

fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend(format!("${}\r\n", argument.len()).bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn arrays_and_lines_are_requests() {
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\0x\r\n*1\r\n";
    let expected: [&[u8]; 3] = [b"SET", b"k", b"\r\n\0x"];
    assert_eq!(whole(set), (expected.map(<[u8]>::to_vec).to_vec(), 30));
    assert_eq!(whole(b"PING\r\n"), (vec![b"PING".to_vec()], 6));
    let words = [b"get".to_vec(), b"key".to_vec()].to_vec();
    assert_eq!(whole(b"  get\t key \nrest"), (words, 12));
}

#[test]
fn empty_requests_are_passed_over() {
    for bytes in [&b"*0\r\n"[..], b"*-1\r\n", b"\r\n", b"\n"] {
        assert_eq!(whole(bytes), (vec![], bytes.len()));
    }
}

#[test]
fn broken_requests_are_told_apart() {
    let long_number = format!("*{}", "1".repeat(40));
    let long_bulk = format!("*1\r\n${}", "1".repeat(40));
    let long_line = "x".repeat(1 << 17);
    let too_many = format!("*{}\r\n", MAX_ARGUMENTS + 1);
    for (bytes, expected) in [
        ("*x\r\n", ARRAY_LENGTH),
        ("*\r\n", ARRAY_LENGTH),
        ("*1x\r\n", ARRAY_LENGTH),
        (too_many.as_str(), ARRAY_LENGTH),
        ("*99999999999999999999\r\n", ARRAY_LENGTH),
        (long_number.as_str(), ARRAY_HEADER_TOO_BIG),
        (long_bulk.as_str(), BULK_HEADER_TOO_BIG),
        (long_line.as_str(), INLINE_TOO_BIG),
        ("*1\r\n:1\r\n", NOT_BULK),
        ("*1\r\n*1\r\n*1\r\n", NOT_BULK),
        ("*1\r\n$-1\r\n", BULK_LENGTH),
        ("*1\r\n$x\r\n", BULK_LENGTH),
        ("*1\r\n$9223372036854775807\r\n", BULK_LENGTH),
        ("*1\r\n$18446744073709551615\r\n", BULK_LENGTH),
        ("*1\r\n$1048577\r\n", BULK_LENGTH),
        ("*1\r\n$1\r\nabc", BULK_LENGTH),
    ] {
        assert_eq!(error(bytes.as_bytes()), expected, "{bytes:.40}");
    }
}

#[test]
fn many_arguments_that_are_too_long_together_are_refused() {
    let half = vec![b'x'; MAX_REQUEST / 2];
    let request = encode(&[half.clone(), half.clone(), half]);
    assert_eq!(error(&request), BULK_LENGTH);
    // The server does not wait for them either.
    let begun = &request[..MAX_REQUEST / 2 + 100];
    assert_eq!(error(begun), BULK_LENGTH);
}

#[test]
fn numbers_are_as_strict_as_in_redis() {
    for (text, expected) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        (" 1", None),
        ("1 ", None),
    ] {
        assert_eq!(number(text.as_bytes()), expected, "{text:?}");
    }
}

#[test]
fn replies_are_read_by_others() {
    let mut reply = Reply::new(0);
    reply.array(5);
    reply.integer(i64::MIN);
    reply.bulk(b"\r\n");
    reply.null();
    reply.simple("OK");
    reply.error(&"ERR a\r\nb");
    let (frame, length) = decode(reply.bytes()).unwrap().unwrap();
    assert_eq!(length, reply.bytes().len());
    let expected = OwnedFrame::Array(vec![
        OwnedFrame::Integer(i64::MIN),
        OwnedFrame::BulkString(b"\r\n".to_vec()),
        OwnedFrame::Null,
        OwnedFrame::SimpleString(b"OK".to_vec()),
        OwnedFrame::Error("ERR a  b".into()),
    ]);
    assert_eq!(frame, expected);
}

#[test]
fn a_reply_that_is_too_long_becomes_an_error_and_the_one_before_stays() {
    let mut reply = Reply::new(16);
    reply.begin();
    reply.bulk(b"short");
    let before = reply.bytes().len();
    reply.begin();
    reply.bulk(b"much too long for so little");
    reply.ok();
    assert!(reply.overflown());
    reply.fail(&"ERR long");
    assert_eq!(&reply.bytes()[before..], b"-ERR long\r\n");
}

proptest! {
    // Failing cases are printed instead of written to files beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_in_pieces_are_requests(
        requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..6),
        step in 1_usize..50,
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        let mut parser = Parser::new(MAX_REQUEST);
        let (mut start, mut seen) = (0, Vec::new());
        for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
            while let Progress::Request(length) = parser.advance(&bytes[start..end]).unwrap() {
                let arguments = parser.arguments(&bytes[start..end]);
                seen.push(arguments.from(0).map(<[u8]>::to_vec).collect::<Vec<_>>());
                parser.restart();
                start += length;
            }
        }
        prop_assert_eq!(seen, requests);
        prop_assert_eq!(start, bytes.len());
    }

    #[test]
    fn garbage_is_read_or_refused_but_never_over_its_end(
        bytes in prop::collection::vec(prop::sample::select(&b"*$:-+0123456789\r\nax"[..]), 0..200),
    ) {
        let mut parser = Parser::new(MAX_REQUEST);
        if let Ok(Progress::Request(length)) = parser.advance(&bytes) {
            prop_assert!(length <= bytes.len());
            let arguments = parser.arguments(&bytes);
            let read: usize = arguments.from(0).map(<[u8]>::len).sum();
            prop_assert!(read <= length);
        }
    }
}

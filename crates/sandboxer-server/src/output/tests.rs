use super::*;

#[test]
fn what_fits_is_whole() {
    let mut kept = Kept::new(10);
    kept.push(b"12345");
    kept.push(b"67890");
    assert!(!kept.is_cut());
    assert_eq!(kept.finish(Encoding::Text), "1234567890");
}

#[test]
fn the_middle_is_cut_and_counted() {
    let mut kept = Kept::new(10);
    for piece in ["0123456789", "abcdefghij", "KLMNOPQRST"] {
        kept.push(piece.as_bytes());
    }
    assert!(kept.is_cut());
    assert_eq!(kept.finish(Encoding::Text), "01234\n[… 20 bytes cut …]\nPQRST");
}

#[test]
fn pieces_of_any_size_keep_the_same_bytes() {
    let data: Vec<u8> = (0..1_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let whole = {
        let mut kept = Kept::new(64);
        kept.push(&data);
        kept.finish(Encoding::Base64)
    };
    for size in [1, 3, 7, 31, 33, 64, 100, 999] {
        let mut kept = Kept::new(64);
        data.chunks(size).for_each(|piece| kept.push(piece));
        assert_eq!(kept.finish(Encoding::Base64), whole, "pieces of {size}");
    }
}

#[test]
fn a_cut_never_leaves_half_a_character() {
    for limit in 8..24 {
        let mut kept = Kept::new(limit);
        kept.push("aé€𝄞".repeat(50).as_bytes());
        let text = kept.finish(Encoding::Text);
        assert!(!text.contains('\u{fffd}'), "{limit}: {text}");
    }
}

#[test]
fn a_stream_is_the_same_text_however_it_is_split() {
    let text = "plain é € 𝄞 日本語 end";
    for size in 1..9 {
        let mut pieces = Pieces::new(Encoding::Text);
        let mut out: String = text.as_bytes().chunks(size).map(|piece| pieces.next(piece)).collect();
        out.extend(pieces.rest());
        assert_eq!(out, text, "pieces of {size}");
    }
}

#[test]
fn bytes_that_are_no_text_come_through_lossy() {
    let mut pieces = Pieces::new(Encoding::Text);
    assert_eq!(pieces.next(b"a\xffb"), "a\u{fffd}b");
    assert_eq!(pieces.next(b"\xe2\x82"), "");
    assert_eq!(pieces.next(b"x"), "\u{fffd}x");
    assert_eq!(pieces.next(b"\xf0\x9d"), "");
    assert_eq!(pieces.rest().as_deref(), Some("\u{fffd}"));
    assert_eq!(pieces.rest(), None);
}

#[test]
fn base64_pieces_are_exact() {
    let mut pieces = Pieces::new(Encoding::Base64);
    assert_eq!(BASE64.decode(pieces.next(b"\x00\xff")).unwrap(), b"\x00\xff");
    assert_eq!(pieces.rest(), None);
}

use super::*;

fn listing(count: usize) -> PagedListing {
    let item = |index: usize| {
        let path = format!("src/file-{index}.rs");
        (
            json!({ "path": path, "op": "created" }),
            format!("created  {path}"),
        )
    };
    PagedListing {
        head: Map::from_iter([("summary".to_owned(), json!({ "total": count }))]),
        lead: vec![format!("{count} entries differ.")],
        digests: false,
        field: "changes",
        items: Items::Things((0..count).map(item).collect()),
    }
}

fn paging(format: PageFormat, start: usize, max_length: usize) -> Paging {
    Paging {
        format,
        start,
        max_length,
    }
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

#[test]
fn whoever_pages_on_in_json_sees_every_item_once_and_never_more_than_was_asked_for() {
    let mut seen = Vec::new();
    let mut start = Some(0);

    while let Some(index) = start {
        let result = page(listing(1_000), paging(PageFormat::Json, index, 3_000));
        let length = text(&result).chars().count();
        assert!(length <= 3_000, "{length}");
        let answer: Value = serde_json::from_str(text(&result)).unwrap();
        assert_eq!(Some(&answer), result.structured_content.as_ref());
        assert_eq!(answer["total"], 1_000);
        assert_eq!(answer["start_index"], index);
        let paths = answer["changes"].as_array().unwrap().iter();
        seen.extend(paths.map(|change| change["path"].as_str().unwrap().to_owned()));
        start = answer["next_index"]
            .as_u64()
            .map(|next| usize::try_from(next).unwrap());
    }

    let all: Vec<String> = (0..1_000)
        .map(|index| format!("src/file-{index}.rs"))
        .collect();
    assert_eq!(seen, all);
}

#[test]
fn whoever_pages_on_in_words_sees_every_line_once() {
    let mut seen = Vec::new();
    let mut start = 0;

    loop {
        let result = page(listing(1_000), paging(PageFormat::Text, start, 2_000));
        assert!(text(&result).chars().count() <= 2_000);
        let lines: Vec<&str> = text(&result).lines().collect();
        assert!(
            lines[0].starts_with(&format!("Showing {start}..")),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1], UNTRUSTED);
        seen.extend(lines[3..].iter().map(|line| (*line).to_owned()));
        match lines[0].split_once("start_index=") {
            None => break,
            Some((_, rest)) => start = rest.split_once(' ').unwrap().0.parse().unwrap(),
        }
    }

    assert_eq!(seen.len(), 1_000);
    assert_eq!(seen[999], "created  src/file-999.rs");
}

#[test]
fn an_item_that_is_longer_than_the_page_is_shown_alone() {
    let mut listing = listing(3);
    if let Items::Things(things) = &mut listing.items {
        things[1].0["path"] = json!("x".repeat(16_000));
    }

    let result = page(listing, paging(PageFormat::Json, 1, SHORTEST));

    let answer = result.structured_content.unwrap();
    assert_eq!(answer["changes"].as_array().unwrap().len(), 1);
    assert_eq!(answer["next_index"], 2);
}

#[test]
fn a_page_behind_the_end_is_empty_and_says_how_many_there_are() {
    let result = page(listing(5), paging(PageFormat::Text, 9, 5_000));

    assert!(text(&result).starts_with("Showing none of 5\n"));
    let answer = result.structured_content.unwrap();
    assert_eq!(answer["next_index"], Value::Null);
    assert_eq!(answer["total"], 5);
}

#[test]
fn the_lines_of_a_diff_stay_lines_and_an_endless_one_is_cut() {
    let lines = vec![
        "@@ -1 +1 @@".to_owned(),
        format!("+{}", "a".repeat(1_000_000)),
        "+\u{1b}[2J".to_owned(),
    ];
    let listing = PagedListing {
        digests: false,
        head: Map::new(),
        lead: Vec::new(),
        field: "unified",
        items: Items::Lines(lines),
    };

    let result = page(listing, paging(PageFormat::Json, 0, 20_000));

    let answer = result.structured_content.unwrap();
    let unified = answer["unified"].as_str().unwrap();
    assert!(
        unified.contains("[998001 more characters]\n+\\x1b[2J\n"),
        "{unified}"
    );
    assert_eq!(answer["total"], 3);
}

#[test]
fn words_never_carry_more_json_than_there_may_be() {
    let mut listing = listing(0);
    let wide = |_| (json!({ "path": "x".repeat(30_000) }), "x".to_owned());
    listing.items = Items::Things((0..20).map(wide).collect());

    let result = page(listing, paging(PageFormat::Text, 0, 5_000));

    assert!(length(&result.structured_content.unwrap()) <= LONGEST);
}

use super::*;

fn parse(text: &str) -> Result<StoreLocation, Invalid> {
    text.parse()
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_file_url_is_decoded_and_encoded_back() {
    let location = parse("file:///srv/a%20b%3F/c%C3%A9/").unwrap();

    assert_eq!(location, StoreLocation::File(PathBuf::from("/srv/a b?/cé")));
    assert_eq!(location.to_string(), "file:///srv/a%20b%3F/c%C3%A9");
    assert_eq!(parse(&location.to_string()).unwrap(), location);
}

#[test]
fn a_plain_path_is_refused_with_the_url_it_should_have_been() {
    assert_eq!(
        refused("/srv/store"),
        "`/srv/store` is a path; write it as a URL: file:///srv/store"
    );
    assert_eq!(
        refused("./store"),
        "`./store` is a path that means another place elsewhere; write the whole one: file:///absolute/path"
    );
}

#[test]
fn file_urls_with_a_host_or_a_step_upwards_are_refused() {
    for text in [
        "file://host/srv",
        "file://srv",
        "file:///",
        "file://",
        "file:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a?x=1",
        "file:///a#b",
        "file:///a%00b",
    ] {
        assert_eq!(parse(text), Err(Invalid::new(FILE_PATH)), "{text}");
    }
    assert!(refused("file:///a%2").starts_with("the path has a percent sign that is not followed"));
}

#[test]
fn memory_is_memory_and_nothing_else() {
    assert_eq!(parse("memory:").unwrap(), StoreLocation::Memory);
    assert_eq!(StoreLocation::Memory.to_string(), "memory:");
    for text in ["memory", "memory://x", "", "ftp://host/x", "S3://bucket"] {
        let said = refused(text);
        assert!(said.contains("is no store; allowed are"), "{said}");
    }
}

#[test]
fn an_s3_url_keeps_every_option_and_is_canonical() {
    let text = "s3://snapshots/team/a%20b?endpoint=https://s3.example.com:8333&region=us-east-1&style=virtual&credentials=instance";

    let StoreLocation::S3(location) = parse(text).unwrap() else {
        panic!("an S3 location");
    };

    assert_eq!(location.bucket, "snapshots");
    assert_eq!(location.prefix, "team/a b");
    assert_eq!(location.region.as_deref(), Some("us-east-1"));
    assert_eq!(location.address_style(), AddressStyle::Virtual);
    assert_eq!(location.credentials, CredentialSource::Instance);
    assert_eq!(location.to_string(), text);
}

#[test]
fn the_bucket_goes_into_the_path_only_when_an_endpoint_is_given() {
    let style = |text: &str| match parse(text).unwrap() {
        StoreLocation::S3(location) => location.address_style(),
        _ => panic!("an S3 location"),
    };

    assert_eq!(style("s3://bucket"), AddressStyle::Virtual);
    assert_eq!(
        style("s3://bucket?endpoint=https://s3.example.com/"),
        AddressStyle::Path
    );
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    assert!(refused("s3://bucket?regoin=x").starts_with("`regoin` is no option"));
    assert!(refused("s3://bucket?style=host").contains("allowed is path or virtual"));
    assert!(refused("s3://bucket?credentials=none").contains("static, instance or anonymous"));
    assert!(refused("s3://bucket?region=").contains("region"));
    assert!(refused("s3://bucket?region=a&region=b").contains("given twice"));
    assert!(refused("s3://").contains("no bucket name"));
    assert!(refused("s3:///prefix").contains("no bucket name"));
    assert!(refused("s3://bucket:9000/x").contains("no bucket name"));
    assert!(refused("s3://bucket/a/../b").contains("`..`"));
    assert!(refused("s3://bucket/a//b").contains("empty"));
    assert!(refused("s3://bucket/%2e%2e").contains("`..`"));
}

#[test]
fn keys_in_a_url_are_refused_and_not_repeated() {
    for text in [
        "s3://user:hunter2@bucket/x",
        "s3://bucket?endpoint=https://user:hunter2@s3.example.com",
        "s3://bucket?endpoint=https%3A%2F%2Fuser%3Ahunter2%40s3.example.com",
        "ftp:user:hunter2@host",
    ] {
        assert!(!refused(text).contains("hunter2"), "{text}");
    }
}

#[test]
fn plain_http_is_only_for_this_machine() {
    for host in ["127.0.0.1:9000", "127.8.9.10", "localhost:80", "[::1]:9000"] {
        assert!(
            parse(&format!("s3://b?endpoint=http://{host}")).is_ok(),
            "{host}"
        );
    }
    for host in [
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "localhost.example",
        "[::2]",
    ] {
        let said = refused(&format!("s3://b?endpoint=http://{host}"));
        assert!(
            said.contains("is not on this machine and not https"),
            "{said}"
        );
    }
    for endpoint in [
        "ftp://x",
        "https://",
        "https://h:99999",
        "https://h:1/?x",
        "https://[nonsense]",
        "https://host.1",
        "https://127.1",
        "https://0x7f000001",
        "https://a|b",
        "https://xn--a.example",
        "https://:9000",
    ] {
        let said = refused(&format!("s3://b?endpoint={endpoint}"));
        assert!(said.starts_with("the option endpoint cannot be"), "{said}");
    }
}

#[test]
fn a_bucket_in_front_of_the_host_needs_https_and_a_name() {
    for endpoint in [
        "http://127.0.0.1:9",
        "https://127.0.0.1:9",
        "https://10.0.0.1",
        "https://[::1]:9000",
        "http://localhost:9000",
    ] {
        for text in [
            format!("s3://b?endpoint={endpoint}&style=virtual"),
            format!("s3://b?style=virtual&endpoint={endpoint}"),
        ] {
            let said = refused(&text);
            assert!(
                said.starts_with("style=virtual puts the bucket's name"),
                "{said}"
            );
            assert!(said.contains(&format!("not `{endpoint}`")), "{said}");
        }
        assert!(parse(&format!("s3://b?endpoint={endpoint}&style=path")).is_ok());
    }
    assert!(refused("s3://b?endpoint=http://127.0.0.1:9&style=virtual").contains("style=path"));
}

#[test]
fn an_endpoint_from_elsewhere_must_fit_the_style_too() {
    let location: S3Location = "bucket?style=virtual".parse().unwrap();
    let endpoint = |text: &str| text.parse::<Endpoint>().unwrap();

    let by_name = location
        .clone()
        .with_endpoint(endpoint("https://s3.example.com"));
    let by_address = location.with_endpoint(endpoint("http://127.0.0.1:9"));

    assert_eq!(
        by_name.unwrap().to_string(),
        "s3://bucket?endpoint=https://s3.example.com&style=virtual"
    );
    let said = by_address.unwrap_err().to_string();
    assert!(
        said.starts_with("style=virtual puts the bucket's name"),
        "{said}"
    );
}

//! Closed sets: enums whose text is their name in JSON.

/// Implements `Display` for enums of unit variants by the name under which they are serialized, so that text and JSON never disagree.
#[macro_export]
macro_rules! display_as_serialized {
    ($($name:ty),+ $(,)?) => {
        $(impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        })+
    };
}

//! Which kind of store the tests of buckets speak to.
//!
//! They write its addresses as `s3://`. With `SHADE_TEST_SCHEME=az` or `gs` programs are given
//! these instead, and what they print is read as if it were of `s3://`: one test for all kinds.

use std::path::{Path, PathBuf};

/// The keys that the tests' stores take.
pub const KEY_ID: &str = "shade";
/// Their secret. Azure has it in base64.
pub const SECRET: &str = "a secret of shade's tests";
const SECRET_BASE64: &str = "YSBzZWNyZXQgb2Ygc2hhZGUncyB0ZXN0cw==";
/// Keys that no store asks for: no emulator of Google's store looks at them.
const NO_KEYS: &str =
    r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}"#;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// S3 and what speaks like it.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl Cloud {
    /// The kind that `SHADE_TEST_SCHEME` asks for, S3 without it.
    ///
    /// # Panics
    /// When it asks for another one.
    #[must_use]
    pub fn tested() -> Self {
        match std::env::var("SHADE_TEST_SCHEME").as_deref() {
            Err(_) | Ok("s3") => Self::S3,
            Ok("gs") => Self::Google,
            Ok("az") => Self::Azure,
            Ok(other) => panic!("SHADE_TEST_SCHEME={other}"),
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3://",
            Self::Google => "gs://",
            Self::Azure => "az://",
        }
    }

    /// A text of a test, with the addresses that programs are given.
    #[must_use]
    pub fn given(self, text: &str) -> String {
        text.replace("s3://", self.scheme())
    }

    /// As [`given`](Self::given), of a path.
    #[must_use]
    pub fn given_path(self, path: &Path) -> PathBuf {
        path.to_str().map_or_else(|| path.to_owned(), |text| self.given(text).into())
    }

    /// What a program printed, as of `s3://`.
    #[must_use]
    pub fn told(self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).replace(self.scheme(), "s3://")
    }

    /// The variables that find a store at the address `endpoint`.
    #[must_use]
    pub fn environment(self, endpoint: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::S3 => vec![
                ("AWS_ENDPOINT_URL", endpoint.to_owned()),
                ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
                ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ],
            Self::Google => vec![
                ("GOOGLE_BASE_URL", endpoint.to_owned()),
                ("GOOGLE_SERVICE_ACCOUNT_KEY", NO_KEYS.to_owned()),
            ],
            Self::Azure => vec![
                ("AZURE_STORAGE_ENDPOINT", format!("{endpoint}/{KEY_ID}")),
                ("AZURE_STORAGE_ACCOUNT_NAME", KEY_ID.to_owned()),
                ("AZURE_STORAGE_ACCOUNT_KEY", SECRET_BASE64.to_owned()),
            ],
        }
    }

    /// As [`environment`](Self::environment), where the secret is another one; `None` if no such
    /// store looks at it.
    #[must_use]
    pub fn with_wrong_keys(self) -> Option<(&'static str, String)> {
        match self {
            Self::S3 => Some(("AWS_SECRET_ACCESS_KEY", "another".to_owned())),
            Self::Azure => Some(("AZURE_STORAGE_ACCOUNT_KEY", "YW5vdGhlcg==".to_owned())),
            Self::Google => None,
        }
    }

    /// The variable that says where the store is, for a store at `endpoint`.
    #[must_use]
    pub fn at(self, endpoint: &str) -> (&'static str, String) {
        self.environment(endpoint).swap_remove(0)
    }
}

//! Makes a client of an address and the environment.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Certificate, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::address::Url;
use crate::answer::{Answer, StoreFault};
use crate::profile::{Place, Profile};
use crate::watched::{PATIENCE, Watch};

/// A connection that is not made by then is tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence within an answer. Stores answer the slowest of a million requests within some
/// seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest setting or certificate file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A client, and the prefix below which it works.
pub(crate) struct Client {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) parts: Parts,
    /// Whether the end of an object in parts may have a condition, as a header of S3's.
    pub(crate) has_conditions: bool,
    pub(crate) prefix: Path,
}

/// How objects in parts are written.
#[derive(Clone)]
pub(crate) enum Parts {
    /// A plain web server takes none.
    None,
    /// By an upload, which has an id and the object's metadata from its beginning.
    Uploads(Arc<dyn MultipartStore>),
    /// Azure: by blocks. Nothing is begun, and the metadata come with the end.
    Blocks,
}

/// What a client does by itself about a request that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retry {
    /// Nothing: the rules of `shade_dataset` decide.
    Never,
    /// Asks again for some minutes, later each time.
    Patient,
}

/// Looks up a variable of the environment.
type Var<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A client for `url`, with at most `connections` that stay open between requests.
pub(crate) fn client(url: &Url, connections: usize, retry: Retry) -> Result<Client, StoreFault> {
    // Fails if there is one already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let options = options(&var, connections)?;
    // What a browser shows of an address of the web has its odd characters encoded.
    let prefix = match url.scheme() {
        "http" | "https" => Path::from_url_path(url.prefix()),
        _ => Path::parse(url.prefix()),
    };
    let prefix = prefix.map_err(|error| unusable(&error))?;
    let retry = retry.config();
    let is_off = var("AWS_CONDITIONAL_PUT").is_some_and(|value| value.eq_ignore_ascii_case("disabled"));
    let has_conditions = url.scheme() == "s3" && !is_off;
    let (store, parts): (Arc<dyn ObjectStore>, Parts) = match url.scheme() {
        "s3" => {
            let builder = s3(url, options, &var)?.with_retry(retry).with_http_connector(Watch::default());
            let store = Arc::new(builder.build().map_err(|error| unusable(&error))?);
            (Arc::<AmazonS3>::clone(&store), Parts::Uploads(store))
        }
        "gs" => {
            let builder = gs(url, options, &var).with_retry(retry).with_http_connector(Watch::default());
            let store = Arc::new(builder.build().map_err(|error| unusable(&error))?);
            (Arc::<GoogleCloudStorage>::clone(&store), Parts::Uploads(store))
        }
        "az" => {
            let builder = az(url, options, &var).with_retry(retry).with_http_connector(Watch::default());
            (Arc::new(builder.build().map_err(|error| unusable_of_azure(&error))?), Parts::Blocks)
        }
        scheme => {
            let host = format!("{scheme}://{}", url.bucket());
            let options = options.with_allow_http(true);
            let builder = HttpBuilder::new().with_url(host).with_client_options(options).with_retry(retry);
            let builder = builder.with_http_connector(Watch::default());
            (Arc::new(builder.build().map_err(|error| unusable(&error))?), Parts::None)
        }
    };
    Ok(Client { store, parts, has_conditions, prefix })
}

impl Retry {
    fn config(self) -> RetryConfig {
        match self {
            Self::Never => RetryConfig { max_retries: 0, ..RetryConfig::default() },
            // By time alone: ten tries, the default, are some seconds.
            Self::Patient => {
                RetryConfig { max_retries: usize::MAX, retry_timeout: PATIENCE, ..RetryConfig::default() }
            }
        }
    }
}

fn options(var: Var<'_>, connections: usize) -> Result<ClientOptions, StoreFault> {
    let mut options = ClientOptions::new()
        // One request at a time on a connection: with HTTP/2 a lost packet holds up all of them.
        .with_http1_only()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT)
        .with_timeout_disabled()
        .with_pool_max_idle_per_host(connections);
    if let Some(path) = var("AWS_CA_BUNDLE") {
        let bad = |why: &dyn Display| said(format!("AWS_CA_BUNDLE={path}: {why}"));
        let text = read(std::path::Path::new(&path)).map_err(|error| bad(&error))?;
        let certificates = Certificate::from_pem_bundle(text.as_bytes()).map_err(|error| bad(&error))?;
        if certificates.is_empty() {
            return Err(bad(&"it has no certificate: expected PEM, with BEGIN CERTIFICATE"));
        }
        options = certificates.into_iter().fold(options, ClientOptions::with_root_certificate);
    }
    Ok(options)
}

fn s3(url: &Url, mut options: ClientOptions, var: Var<'_>) -> Result<AmazonS3Builder, StoreFault> {
    let mut builder = AmazonS3Builder::new();
    let profile = profile(var)?;
    let endpoint = var("AWS_ENDPOINT_URL_S3").or_else(|| var("AWS_ENDPOINT_URL"));
    let endpoint = endpoint.or_else(|| var("AWS_ENDPOINT")).or(profile.endpoint);
    if let (Some(id), Some(secret)) = (profile.key_id, profile.secret) {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        builder = profile.token.into_iter().fold(builder, AmazonS3Builder::with_token);
    }
    builder = profile.region.into_iter().fold(builder, AmazonS3Builder::with_region);
    for (key, value) in settings("AWS_") {
        match key.parse() {
            Ok(AmazonS3ConfigKey::Client(ClientConfigKey::ProxyUrl)) | Err(_) => {}
            Ok(AmazonS3ConfigKey::Client(key)) => options = options.with_config(key, value),
            Ok(key) => builder = builder.with_config(key, value),
        }
    }
    if let Some(endpoint) = endpoint {
        options = options.with_allow_http(is_http(&endpoint));
        builder = builder.with_endpoint(endpoint);
    }
    Ok(builder.with_client_options(options).with_bucket_name(url.bucket()))
}

fn gs(url: &Url, options: ClientOptions, var: Var<'_>) -> GoogleCloudStorageBuilder {
    let endpoint = var("GOOGLE_BASE_URL");
    let options = options.with_allow_http(endpoint.as_deref().is_some_and(is_http));
    let mut builder = GoogleCloudStorageBuilder::new().with_client_options(options);
    for (key, value) in settings("GOOGLE_") {
        if let Ok(key) = key.parse::<GoogleConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    builder.with_bucket_name(url.bucket())
}

fn az(url: &Url, options: ClientOptions, var: Var<'_>) -> MicrosoftAzureBuilder {
    let endpoint = var("AZURE_STORAGE_ENDPOINT").or_else(|| var("AZURE_ENDPOINT"));
    let options = options.with_allow_http(endpoint.as_deref().is_some_and(is_http));
    let mut builder = MicrosoftAzureBuilder::new().with_client_options(options);
    // As Azure's own tools call them. The longer names go before.
    for (key, name) in [
        (AzureConfigKey::AccountName, "AZURE_STORAGE_ACCOUNT"),
        (AzureConfigKey::AccessKey, "AZURE_STORAGE_KEY"),
    ] {
        builder = var(name).into_iter().fold(builder, |builder, value| builder.with_config(key, value));
    }
    for (key, value) in settings("AZURE_") {
        if let Ok(key) = key.parse::<AzureConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    builder.with_container_name(url.bucket())
}

/// Why Azure's settings make no client.
fn unusable_of_azure(error: &object_store::Error) -> StoreFault {
    match error.to_string().contains("Account must be specified") {
        true => {
            said("AZURE_STORAGE_ACCOUNT_NAME is not set: it names the account of az:// addresses".to_owned())
        }
        false => unusable(error),
    }
}

fn is_http(endpoint: &str) -> bool {
    endpoint.starts_with("http://")
}

/// The settings of the environment that begin with `prefix`, by their names in small letters.
fn settings(prefix: &str) -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(move |(name, value)| {
        let (name, value) = (name.to_str()?, value.to_str()?);
        (name.starts_with(prefix) && !value.is_empty()).then(|| (name.to_ascii_lowercase(), value.to_owned()))
    })
}

/// The profile in the files of AWS's tools, where nothing in the environment says who we are.
fn profile(var: Var<'_>) -> Result<Profile, StoreFault> {
    const IDENTITIES: [&str; 5] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_SKIP_SIGNATURE",
    ];
    let is_known = IDENTITIES.iter().any(|name| var(name).is_some());
    let Some(place) = Place::of_environment(var) else { return Ok(Profile::default()) };
    let text = |path| read(path).unwrap_or_default();
    let profile = Profile::of_texts(&place.name, &text(&place.credentials), &text(&place.config));
    if is_known {
        return Ok(Profile { key_id: None, secret: None, token: None, ..profile });
    }
    let has_keys = profile.key_id.is_some() && profile.secret.is_some();
    if has_keys || var("AWS_PROFILE").is_none() {
        return Ok(profile);
    }
    let why = match &profile.fetched_by {
        Some(how) => format!(
            "AWS_PROFILE={name}: its keys come by {how}; put them into the environment: eval \"$(aws configure \
             export-credentials --profile {name} --format env)\"",
            name = place.name
        ),
        None => format!(
            "AWS_PROFILE={}: no such profile with keys in {} or {}",
            place.name,
            place.credentials.display(),
            place.config.display()
        ),
    };
    Err(said(why))
}

/// The text of a small file.
fn read(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// A setting that makes no client.
fn unusable(error: &dyn std::error::Error) -> StoreFault {
    said(error.to_string())
}

fn said(words: String) -> StoreFault {
    StoreFault { answer: Answer::Unasked, status: None, wait: None, words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    #[test]
    fn an_address_of_the_web_may_be_encoded_and_a_key_is_as_it_is() {
        for (address, expected) in [
            ("https://host/my%20data/a%2Bb", "my data/a+b"),
            ("http://host/my data", "my data"),
            ("s3://bucket/my%20data", "my%20data"),
        ] {
            let Ok(Address::Url(url)) = Address::parse(address) else { panic!("{address}") };
            assert_eq!(client(&url, 1, Retry::Never).unwrap().prefix.as_ref(), expected);
        }
    }
}

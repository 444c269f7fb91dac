//! WebDataset tars of images.

use shade_formats::shard::member_header;

use crate::Source;

/// A tar of these images, each with its label and a caption, in changing order.
///
/// # Panics
/// Never.
#[must_use]
pub fn webdataset(sources: &[Source]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (at, Source { path, label, bytes }) in sources.iter().enumerate() {
        let extension = path.rsplit('.').next().unwrap();
        let image = (format!("{at:03}.{extension}"), bytes.clone());
        let label = (format!("{at:03}.cls"), label.to_string().into_bytes());
        let caption = (format!("{at:03}.txt"), format!("caption {path}").into_bytes());
        let members = if at % 3 == 0 { [caption, image, label] } else { [image, label, caption] };
        members.iter().for_each(|(name, bytes)| append(&mut tar, name, bytes));
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn append(tar: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    tar.extend(member_header(name, bytes.len() as u64).unwrap());
    tar.extend(bytes);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

//! What the commands print as JSON, and the schemas of it.

use crate::append::Appended;
use crate::create::Created;
use crate::diff::Compared;
use crate::extract::Extracted;
use crate::index::Indexed;
use crate::info::Info;
use crate::ls::SampleLine;
use crate::merge::Merged;
use crate::parts::{Finished, Listing, PackedPart, PlanMade};
use crate::progress::ProgressLine;
use crate::schemas::is_described;
use crate::subset::{RelabelReport, Report};
use crate::verify::Verified;

#[test]
fn reports_are_described() {
    is_described::<Created>("shade-pack-create", "shade-pack create --json");
    is_described::<PackedPart>("shade-pack-create-part", "shade-pack create --part --json");
    is_described::<Listing>("shade-pack-list", "shade-pack list --json");
    is_described::<PlanMade>("shade-pack-plan", "shade-pack plan --json");
    is_described::<Finished>("shade-pack-finish", "shade-pack finish --json");
    is_described::<Indexed>("shade-pack-index", "shade-pack index --json");
    is_described::<Info>("shade-pack-info", "shade-pack info --json");
    is_described::<SampleLine<'static>>("shade-pack-ls", "A line of shade-pack ls --json");
    is_described::<Verified>("shade-pack-verify", "shade-pack verify --json");
    is_described::<Extracted>("shade-pack-extract", "shade-pack extract --json");
    is_described::<Compared>("shade-pack-diff", "shade-pack diff --json");
    is_described::<Merged>("shade-pack-merge", "shade-pack merge --json");
    is_described::<Report>("shade-pack-subset", "shade-pack subset --json");
    is_described::<RelabelReport>("shade-pack-relabel", "shade-pack relabel --json");
    is_described::<Appended>("shade-pack-append", "shade-pack append --json");
    is_described::<ProgressLine>("shade-pack-progress", "A line of shade-pack --progress json");
}

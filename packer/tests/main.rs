//! The packer's behaviours, one file each. They are one program, so that it is linked once and the
//! files share one prelude.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod a_dataset_appears_whole_or_not_at_all;
mod a_source_that_changed_is_told;
mod a_source_that_changes_meanwhile_is_bad;
mod a_stream_becomes_a_dataset;
mod append_adds_what_is_new;
mod bytes_depend_on_source_and_options_only;
mod diff_tells_what_changed;
mod extract_gives_the_folder_back;
mod extract_never_leaves_its_folder;
mod full_stores_are_noticed;
mod indexes_point_at_images;
mod killed_packs_go_on;
mod labels_keep_their_numbers;
mod ls_lists_samples;
mod memory_stays_bounded;
mod merged_datasets_are_datasets;
mod names_command_no_terminal;
mod nothing_waits_for_pipes;
mod odd_sources_have_defined_outcomes;
mod one_command_at_a_time;
mod order_and_labels_are_torchvisions;
mod packed_in_parts;
mod pairs_stay_together;
mod raw_pixels_train_fast;
mod relabelled_datasets_share_their_shards;
mod removed_shards_are_made_again;
mod reports_are_for_people_and_programs;
mod resumed_work_is_checked;
mod shards_are_plain_tars;
mod sources_become_datasets;
mod subsets_share_their_shards;
mod unexpected_sources_name_a_remedy;
mod verify_names_every_damaged_sample;
mod what_is_not_ours_stays;

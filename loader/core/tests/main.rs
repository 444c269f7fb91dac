//! The core's behaviours, one file each. They are one program, so that it is linked once and their
//! world is compiled once.

mod cache_model;
mod memory_contract;
mod replay;

mod a_concurrent_run_is_a_sequential_one;
mod another_world_size;
mod any_number_of_ranks_has_one_plan;
mod bad_records_have_a_limit;
mod cache_against_a_model;
mod cache_arc;
mod cache_worked_examples;
mod core_around;
mod core_decoded_once;
mod core_group;
mod core_jobs;
mod core_lookahead;
mod core_own_sizes;
mod core_packages;
mod core_prefetch;
mod core_presets;
mod core_reads;
mod core_replay;
mod core_resize;
mod core_tier;
mod core_trace;
mod core_views;
mod core_waits;
mod coupled_plans;
mod degenerate_inputs;
mod draws_without_reports;
mod hit_ratios;
mod hit_ratios_policies;
mod lookahead;
mod memory;
mod nodes_share_one_plan;
mod nodes_tell_their_scores;
mod plan_draws;
mod plan_slices;
mod plans_follow_a_table_of_weights;
mod resuming_in_the_middle;
mod strata_of_a_plan;
mod strata_stay_where_they_are_cached;
mod subsets_of_a_dataset;
mod the_next_epoch_is_filled_before_it_begins;

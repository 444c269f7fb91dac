//! Which plans a state or the scores of another node may belong to.

use shade_formats::control::PlanSpec;

/// Digest of the plan's parameters, except strata, which a state has itself. Batch size and world
/// size are not part of it. Write a new field only where it is not its default, so that older
/// states still fit.
pub(super) fn plan_digest(spec: &PlanSpec) -> u64 {
    let PlanSpec {
        sampler,
        order,
        seed,
        rep,
        hit_cap,
        cover,
        explore,
        echo,
        prune,
        whole_from,
        replacement,
        pace,
        draw_ahead,
        strata: _,
        mix,
        weights_digest,
        subset_digest,
        group,
    } = *spec;
    let mut bytes = Vec::new();
    for name in [sampler.as_str(), order.as_str()] {
        bytes.extend_from_slice(name.as_bytes());
        // No name has it, so no two pairs of names give the same bytes.
        bytes.push(0);
    }
    bytes.extend_from_slice(&seed.to_le_bytes());
    bytes.extend([rep, hit_cap, explore].iter().flat_map(|number| number.to_bits().to_le_bytes()));
    bytes.extend_from_slice(&cover.to_le_bytes());
    bytes.extend([u8::from(pace), u8::from(draw_ahead)]);
    let default = PlanSpec::default();
    let mut later = |tag: u8, differs: bool, value: &[u8]| {
        if differs {
            bytes.push(tag);
            bytes.extend_from_slice(value);
        }
    };
    later(1, echo.to_bits() != default.echo.to_bits(), &echo.to_bits().to_le_bytes());
    later(2, prune.to_bits() != default.prune.to_bits(), &prune.to_bits().to_le_bytes());
    later(3, whole_from != default.whole_from, &whole_from.to_le_bytes());
    later(4, replacement != default.replacement, &[u8::from(replacement)]);
    later(5, weights_digest != default.weights_digest, &weights_digest.to_le_bytes());
    later(6, group != default.group, &group.to_le_bytes());
    later(9, subset_digest != default.subset_digest, &subset_digest.to_le_bytes());
    later(8, mix.to_bits() != default.mix.to_bits(), &mix.to_bits().to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use shade_formats::control::{Order, Sampler};

    use super::*;

    fn plan() -> PlanSpec {
        PlanSpec { sampler: Sampler::Pads, seed: 7, ..PlanSpec::default() }
    }

    /// A change of it refuses all existing states: then change the magic, too.
    #[test]
    fn the_digest_of_a_plan_s_parameters_never_changes() {
        assert_eq!(plan_digest(&plan()), 7_136_016_774_618_295_799);
    }

    #[test]
    fn every_parameter_of_the_plan_counts_except_strata() {
        let plan = plan();
        let others = [
            PlanSpec { sampler: Sampler::Uniform, ..plan },
            PlanSpec { order: Order::Spaced, ..plan },
            PlanSpec { seed: 8, ..plan },
            PlanSpec { rep: 2.0, ..plan },
            PlanSpec { hit_cap: 0.5, ..plan },
            PlanSpec { cover: 6, ..plan },
            PlanSpec { explore: 0.1, ..plan },
            PlanSpec { echo: 3.0, ..plan },
            PlanSpec { prune: 0.25, ..plan },
            PlanSpec { whole_from: 1, ..plan },
            PlanSpec { replacement: false, ..plan },
            PlanSpec { weights_digest: 1, ..plan },
            PlanSpec { subset_digest: 1, ..plan },
            PlanSpec { group: 1, ..plan },
            PlanSpec { mix: 0.5, ..plan },
            PlanSpec { pace: true, ..plan },
            PlanSpec { draw_ahead: true, ..plan },
        ];
        assert!(others.iter().all(|other| plan_digest(other) != plan_digest(&plan)));
        assert_eq!(plan_digest(&PlanSpec { strata: 8, ..plan }), plan_digest(&plan));
    }
}

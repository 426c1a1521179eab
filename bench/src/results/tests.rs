use serde_json::json;

use super::*;

#[test]
fn every_figure_of_the_matrix_is_in_the_page() {
    let overall = json!({"policy": "sooner", "ratio_arithmetic_mean": 1.234, "ratio_geometric_mean": 1.2, "ratio_worst": 9.87,
        "cells_lowest": 3, "share_of_cells_within_5_percent_of_best": 0.5, "forwarded_mean": 0.25});
    let lost = json!({"cell": "exp/n8", "best_rival": "c3", "mean_over_rival": {"mean": 1.046, "half_width": null},
        "may_be_chance": true});
    let sooner = json!({"policy": "sooner", "rivals": "pushing", "cells": 4, "cells_lowest": 3, "not_lowest": [lost]});
    let matrix = json!({"command": "dataplane-sim matrix --quick", "seeds": [1, 2], "cells": [{}, {}, {}, {}],
        "summary": {"overall": [overall], "sooner": [sooner]}});
    let page = simulated::matrix(&matrix).unwrap();
    assert!(page.contains("`dataplane-sim matrix --quick`, seeds 1, 2, 4 cells."), "{page}");
    assert!(page.contains("| sooner | 1.23 | 1.20 | 9.87 | 3 | 50 % | 25 % |"), "{page}");
    assert!(page.contains("| exp/n8 | c3 | 4.6 % | may be chance |"), "{page}");
}

#[test]
fn what_is_missing_is_named() {
    assert!(simulated::matrix(&json!({})).unwrap_err().to_string().contains("/command"));
    assert!(part(Path::new("/nonexistent"), None, simulated::matrix).is_err());
}

#[test]
fn a_miss_and_its_assumptions_are_in_the_page() {
    let finding = json!({"what": "a|b", "unit": "%", "published": {"says": "42 %", "source": "S"},
        "ours": {"mean": 20.0, "half_width": 1.5}, "verdict": "MISSES the size"});
    let experiment = json!({"experiment": "E1", "name": "thesis", "title": "t", "command": "c", "assumptions": ["Ours."],
        "findings": [finding]});
    let page = simulated::reproduce(&json!({"seeds": [1], "quick": false, "experiments": [experiment]})).unwrap();
    assert!(page.contains("| E1 | a/b | 42 % (S) | 20.0 ± 1.50 % | **misses** the size |"), "{page}");
    assert!(page.contains("- Ours.\n"), "{page}");
}

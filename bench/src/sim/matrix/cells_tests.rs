use super::*;

#[test]
fn the_quick_matrix_has_the_cells_of_the_survey() {
    let cells = quick();
    let count = |group| cells.iter().filter(|cell| cell.group == group).count();
    let groups = [Group::Workloads, Group::Load, Group::Nodes, Group::Cost, Group::Speeds];
    assert_eq!(groups.map(count), [10, 5, 8, 4, 6]);
    assert!(cells.iter().all(|cell| is_bearable(&cell.scenario)));
    assert_eq!(cells[0].name(), "exp/uniform/n8/load0.8/report100/redirect0.5-2");
}

#[test]
fn every_cell_is_possible_and_has_a_name_of_its_own() {
    let (cells, left_out) = full();
    assert!(cells.len() > 300 && left_out > 0, "{} {left_out}", cells.len());
    let names: BTreeSet<String> = cells.iter().map(Cell::name).collect();
    assert_eq!(names.len(), cells.len());
    cells.iter().for_each(|cell| cell.scenario.check().unwrap());
    let of = |group| cells.iter().filter(|cell| cell.group == group).count();
    assert!(Group::ALL.iter().all(|group| of(*group) > 0));
    assert_eq!((of(Group::HeldOut), of(Group::Others)), (held_out().len(), others().len()));
}

#[test]
fn every_pair_of_levels_occurs() {
    let cells = pairs();
    let has =
        |workload, nodes| cells.iter().any(|cell| (cell.scenario.workload, cell.scenario.nodes) == (workload, nodes));
    assert!(WORKLOADS.into_iter().all(|workload| NODES.into_iter().all(|nodes| has(workload, nodes))));
    let levels = [6, 5, 7, 4, 5, 6];
    let products: usize =
        (0..6).flat_map(|i| (i + 1..6).map(move |j| (i, j))).map(|(i, j)| levels[i] * levels[j]).sum();
    assert_eq!(cells.len(), products);
}

#[test]
fn a_node_that_cannot_even_send_its_packets_away_is_unbearable() {
    let skewed = |nodes| Scenario { nodes, ingress: Ingress::Skewed(0.5), ..Scenario::default() };
    assert!(is_bearable(&skewed(8)) && is_bearable(&skewed(32)));
    // Half of the packets of 64 nodes at load 0.8 are 2.56 a µs, and sending one takes 0.5 µs.
    assert!(!is_bearable(&skewed(64)));
    assert!(!is_bearable(&Scenario { load: 1.1, ..Scenario::default() }));
    // 90 % of the packets at one node of eight, 0.8 each: 6.4 · 0.9 − 1 must leave at 1 + 1 of 10 µs each.
    let dear = Scenario { ingress: Ingress::Skewed(0.9), forwarding: redirect((2.0, 5.0)), ..skewed(8) };
    assert!(!is_bearable(&dear));
}

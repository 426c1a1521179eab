//! A small matrix from the plan to its files.

use dataplane_common::tuning::Tuning;

use super::*;

fn plan(names: &[&str], seeds: &[u64]) -> Plan {
    let contenders = names.iter().map(|name| Contender::from_name(name).unwrap()).collect();
    // A load sweep of five cells, and the cell between them.
    let cells = cells::quick().into_iter().skip(2).filter(|cell| cell.scenario.workload.name() == "bi90");
    let mut plan =
        Plan { cells: cells.collect(), left_out: 0, contenders, tuning: Tuning::DEFAULT, seeds: seeds.to_vec() };
    plan.size(2_000);
    plan
}

fn matrix(jobs: usize) -> Matrix {
    let names = ["local", "sooner", "ept-erl", "steal", "sooner+spt", "c3+spt"];
    Matrix::run(plan(&names, &[1, 2]), "dataplane-sim matrix".to_owned(), jobs, &|| ()).unwrap()
}

#[test]
fn the_number_of_jobs_changes_no_byte() {
    let files = |jobs| {
        let matrix = matrix(jobs);
        (files::csv(&matrix), files::json(&matrix).to_string(), report::html(&matrix).unwrap())
    };
    assert_eq!(files(1), files(3));
}

#[test]
fn there_is_one_record_for_each_cell_and_runner() {
    let matrix = matrix(1);
    let (cells, runners) = (matrix.plan.cells.len(), matrix.plan.runners().len());
    assert_eq!((cells, runners, matrix.records.len()), (7, 9, 63));
    for (cell, place) in (0..cells).flat_map(|cell| (0..runners).map(move |place| (cell, place))) {
        let record = &matrix.row(cell)[place];
        assert_eq!((record.cell, &record.runner), (cell, &matrix.plan.runners()[place]));
        assert_eq!(record.means_ns.len(), 2);
        assert!(record.row.mean_ns.mean > 4_000.0 && record.p99_ns.mean >= record.row.mean_ns.mean, "{record:?}");
    }
    assert!((matrix.row(0)[0].row.ratio.mean - 1.0).abs() < 1e-12, "the bound is its own measure");
}

#[test]
fn runs_are_as_long_as_reports_and_nodes_need() {
    let mut plan = plan(&["local"], &[1]);
    let rare = plan.cells[0].scenario.reports;
    plan.cells[0].scenario.reports.interval_ns = rare.interval_ns * 100;
    plan.size(5_000);
    let [rare, usual] = [0, 1].map(|cell| plan.cells[cell].scenario.packets);
    assert!(rare == 50_000 && usual == 5_000, "{rare} {usual}");
}

#[test]
fn files_have_the_figures() {
    let matrix = matrix(2);
    let csv = files::csv(&matrix);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + matrix.records.len());
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "no field here needs a comma");
    let json = files::json(&matrix);
    let records = json["records"].as_array().unwrap();
    assert_eq!(records.len(), matrix.records.len());
    assert!(records.iter().all(|record| record["p99_ns"]["mean"].is_f64() && record["cell"].is_string()));
    let sooner = records.iter().find(|record| record["policy"] == "sooner+spt").unwrap();
    assert_eq!((&sooner["service"], &sooner["pulls"]), (&"shortest".into(), &false.into()));
    assert_eq!(json["seeds"], serde_json::json!([1, 2]));
    assert_eq!(json["cells"][0]["scenario"]["workload"], "bi90");
    assert!(files::text(&matrix).contains("\nsooner: lowest in "));
}

#[test]
fn the_report_is_one_file_with_plots() {
    let page = report::html(&matrix(1)).unwrap();
    assert!(page.matches("<svg").count() >= 5 && page.matches("<svg").count() == page.matches("</svg>").count());
    for outside in ["<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let hosts: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    assert!(hosts.iter().all(|host| *host == "http://www.w3.org/2000/svg"), "{hosts:?}");
}

#[test]
fn standings_name_the_cells_in_which_a_rival_is_lower() {
    let matrix = matrix(1);
    let subjects: Vec<String> = matrix.summary.standings.iter().map(|of| of.subject.to_string()).collect();
    assert_eq!(subjects, ["sooner", "sooner", "sooner+spt", "sooner+spt"]);
    for standings in &matrix.summary.standings {
        assert_eq!(standings.cells.len(), matrix.plan.cells.len());
        for standing in &standings.cells {
            let row = matrix.row(standing.cell);
            let mean = |name: &str| row.iter().find(|record| record.runner.name() == name).unwrap().row.mean_ns.mean;
            let is_lower = mean(&standings.subject.to_string()) <= mean(&standing.rival);
            // A mean of ratios and a ratio of means can differ when they are this near to 1.
            assert!(is_lower == standing.is_lowest() || (standing.ratio.mean - 1.0).abs() < 0.02, "{standing:?}");
        }
    }
    let local = &matrix.summary.overall[3];
    assert_eq!((local.name.as_str(), local.forwarded), ("local", 0.0));
    assert!(local.worst.0 >= local.mean && local.mean >= local.geometric);
}

//! scratch
fn main() {
    let mut data = compare::Data::default();
    let args: Vec<String> = std::env::args().skip(1).collect();
    for a in &args {
        data.read(a, &mut std::fs::File::open(a).unwrap()).unwrap();
    }
    let set = data.finish();
    let t = compare::benchstat::tables(&set, &Default::default());
    if std::env::var_os("CSV").is_some() {
        print!("{}", t.to_csv().text)
    } else {
        print!("{}", t.to_text())
    }
}

//! Builds the builtin image and prints where it is.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recipe = guest::image::Recipe::builtin(guest::image::BUILTIN)?;
    let mut progress = |p: guest::image::Progress| eprintln!("{} {:?}", p.stage.text(), p.fraction);
    let image = guest::image::build(&recipe, &mut progress, &guest::Cancel::new())?;
    println!("{}", image.folder.display());
    Ok(())
}

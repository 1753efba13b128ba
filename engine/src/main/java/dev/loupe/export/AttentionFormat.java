package dev.loupe.export;

import dev.loupe.generate.Generation;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The kinds of file that attention maps can be written to, each known by the ending of its name.
 * Where a run kept pre-softmax scores, they go along, except into the picture.
 */
public enum AttentionFormat {
  /** Arrays for numpy. */
  NPZ(NpzExport::write),
  /** One object, the same as {@code --json} prints, with the weights in it. */
  JSON(RunJson::writeWithMaps),
  /** One line per query and key. */
  CSV(CsvExport::write),
  /** A picture of all maps side by side. */
  PNG((run, colour, file) -> HeatMapPicture.write(run, colour, file)), // loaded when it draws
  /** A page to explore the maps in a browser, in one file that needs no network. */
  HTML(HeatMapPage::write);

  @FunctionalInterface
  private interface Exporter {
    void write(MappedRun run, ColourScale colour, Path file) throws IOException;
  }

  private final Exporter exporter;

  AttentionFormat(Exporter exporter) {
    this.exporter = exporter;
  }

  /** How the names of such files end, with the dot. */
  public String ending() {
    return Endings.of(this);
  }

  /**
   * The format that the ending of {@code file} names, in upper or lower case.
   *
   * @throws IllegalArgumentException if it names none, the message lists the endings; or if this
   *     Java can't write it
   */
  public static AttentionFormat of(Path file) {
    AttentionFormat format = Endings.named(file, values(), "attention maps");
    if (format == PNG && ModuleLayer.boot().findModule("java.desktop").isEmpty()) {
      throw new IllegalArgumentException(
          "%s: this Java runtime was made without what draws pictures (java.desktop)"
              .formatted(file));
    }
    return format;
  }

  /**
   * {@link #write(Generation, Path)} into a temporary file, which the caller closes. A failure
   * leaves none.
   */
  public TemporaryFile temporary(Generation run) throws IOException {
    Path file = Files.createTempFile("loupe-", ending());
    try {
      write(run, file);
      return new TemporaryFile(file);
    } catch (Throwable e) {
      Files.deleteIfExists(file);
      throw e;
    }
  }

  /** {@link #write(Generation, ColourScale, Path)} in the usual colour. */
  public void write(Generation run, Path file) throws IOException {
    write(run, ColourScale.SQUARE_ROOT, file);
  }

  /**
   * Writes the maps of {@code run} to {@code file}, replacing what was there. A failure leaves a
   * part of it behind: give a temporary file and rename it afterwards. Maps are read row by row;
   * nothing of their size is held. The same run gives the same bytes (a picture: with the same
   * fonts).
   *
   * @param colour png and html: which colour a weight has; the page can switch
   * @throws IllegalArgumentException if these maps do not fit this format; nothing is written then
   * @throws IllegalStateException if the run kept no maps
   */
  public void write(Generation run, ColourScale colour, Path file) throws IOException {
    exporter.write(MappedRun.of(run), colour, file);
  }
}

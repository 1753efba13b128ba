package dev.loupe.export;

import dev.loupe.Generation;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

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
  PNG((run, options, file) -> HeatMapPicture.write(run, options, file)), // loaded when it draws
  /** A page to explore the maps in a browser, in one file that needs no network. */
  HTML(HeatMapPage::write);

  @FunctionalInterface
  private interface Exporter {
    void write(MappedRun run, ExportOptions options, Path file) throws IOException;
  }

  private final Exporter exporter;

  AttentionFormat(Exporter exporter) {
    this.exporter = exporter;
  }

  /** How the names of such files end, with the dot. */
  public String ending() {
    return "." + name().toLowerCase(Locale.ROOT);
  }

  /**
   * The format that the ending of {@code file} names, in upper or lower case.
   *
   * @throws IllegalArgumentException if it names none, the message lists the endings; or if this
   *     Java can't write it
   */
  public static AttentionFormat of(Path file) {
    String name = String.valueOf(file.getFileName()).toLowerCase(Locale.ROOT);
    for (AttentionFormat format : values()) {
      if (name.endsWith(format.ending())) {
        if (format == PNG && ModuleLayer.boot().findModule("java.desktop").isEmpty()) {
          throw new IllegalArgumentException(
              "%s: this Java runtime was made without what draws pictures (java.desktop)"
                  .formatted(file));
        }
        return format;
      }
    }
    throw new IllegalArgumentException(
        "attention maps cannot be written to %s: its name must end in one of %s"
            .formatted(
                file,
                Arrays.stream(values())
                    .map(AttentionFormat::ending)
                    .collect(Collectors.joining(" "))));
  }

  /** {@link #write(Generation, ExportOptions, Path)} with the defaults. */
  public void write(Generation run, Path file) throws IOException {
    write(run, ExportOptions.DEFAULTS, file);
  }

  /**
   * Writes the maps of {@code run} to {@code file}, replacing what was there. A failure leaves a
   * part of it behind: give a temporary file and rename it afterwards. Maps are read row by row;
   * nothing of their size is held. The same run gives the same bytes (a picture: with the same
   * fonts).
   *
   * @throws IllegalArgumentException if these maps do not fit this format; nothing is written then
   * @throws IllegalStateException if the run kept no maps
   */
  public void write(Generation run, ExportOptions options, Path file) throws IOException {
    exporter.write(MappedRun.of(run), options, file);
  }
}

package dev.loupe.export;

/**
 * Where everything of a heat map picture goes, in pixels. Panels stand layers down, heads across;
 * cells are whole pixels, so that none is blurred, and at least one pixel: where that would make
 * the picture larger than {@link #MAX_SIDE}, a cell stands for {@code pool} x {@code pool} weights.
 *
 * @param rows number of layers
 * @param columns number of heads
 * @param cells per side of a panel
 * @param cell pixels per side of a cell
 * @param pool tokens per cell
 * @param labelSpace left of and under each panel, for token labels; 0 for none
 * @param captionSpace above each panel
 */
record PictureLayout(
    int rows, int columns, int cells, int cell, int pool, int labelSpace, int captionSpace) {
  /** The longest side a picture may have. */
  static final int MAX_SIDE = 4000;

  static final int MARGIN = 16;
  static final int TITLE_SPACE = 48;
  static final int LEGEND_SPACE = 84;

  /** The smallest cell that a line of text fits beside. */
  static final int LABEL_PITCH = 14;

  private static final int GAP = 14;
  private static final int MIN_WIDTH = 620; // the legend's
  private static final int LARGE_PANEL = 960;
  private static final int SMALL_PANEL = 420;
  private static final int LARGEST_CELL = 40;

  /**
   * @param labelSpace room that the token labels want; 0 if there is no font
   * @throws IllegalArgumentException if there are more panels than a picture has room for
   */
  static PictureLayout of(int layers, int heads, int tokens, int labelSpace) {
    boolean single = layers == 1 && heads == 1;
    int captionSpace = single ? 0 : 18;
    int target = single ? Math.max(LARGE_PANEL, tokens * LABEL_PITCH) : SMALL_PANEL;
    PictureLayout labelled =
        fit(layers, heads, tokens, Math.min(target, MAX_SIDE), labelSpace, captionSpace);
    // of a single map every nth token can be labelled, of many small ones all or none
    return single || labelled.cell >= LABEL_PITCH
        ? labelled
        : fit(layers, heads, tokens, target, 0, captionSpace);
  }

  private static PictureLayout fit(
      int layers, int heads, int tokens, int target, int labelSpace, int captionSpace) {
    int across = MAX_SIDE - 2 * MARGIN - heads * labelSpace - (heads - 1) * GAP;
    int down =
        MAX_SIDE
            - (2 * MARGIN + TITLE_SPACE + LEGEND_SPACE)
            - layers * (labelSpace + captionSpace)
            - (layers - 1) * GAP;
    int side = Math.min(target, Math.min(across / heads, down / layers));
    if (side < 1) {
      if (labelSpace > 0) {
        return fit(layers, heads, tokens, target, 0, captionSpace);
      }
      throw new IllegalArgumentException(
          "%d x %d maps do not fit a picture of %d x %d pixels: choose fewer layers or heads"
              .formatted(layers, heads, MAX_SIDE, MAX_SIDE));
    }
    int pool = (tokens + side - 1) / side;
    int cells = (tokens + pool - 1) / pool;
    int cell = Math.min(LARGEST_CELL, side / cells);
    return new PictureLayout(layers, heads, cells, cell, pool, labelSpace, captionSpace);
  }

  /** Side of a panel. */
  int side() {
    return cells * cell;
  }

  int width() {
    return Math.max(MIN_WIDTH, panelX(columns) - GAP + MARGIN);
  }

  int height() {
    return panelsEnd() + LEGEND_SPACE + MARGIN;
  }

  /** Left edge of the maps of the head at {@code column}. */
  int panelX(int column) {
    return MARGIN
        + labelSpace
        + column * (side() + labelSpace + GAP)
        - (column == columns ? labelSpace : 0);
  }

  /** Upper edge of the maps of the layer at {@code row}. */
  int panelY(int row) {
    return MARGIN + TITLE_SPACE + captionSpace + row * (side() + labelSpace + captionSpace + GAP);
  }

  /** Where the last row of panels and its labels end. */
  int panelsEnd() {
    return panelY(rows - 1) + side() + labelSpace;
  }
}

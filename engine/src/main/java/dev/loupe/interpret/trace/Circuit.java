package dev.loupe.interpret.trace;

import java.util.List;
import java.util.Optional;

/**
 * The smallest set of parts that keeps a quantity.
 *
 * @param members in their order
 * @param value of the quantity with every other part replaced
 * @param kept share of the effect
 * @param edges as few as keep three quarters of what the members keep: those without which the
 *     quantity falls most, these first
 * @param edgesValue of the quantity where the members read each other by these edges alone
 * @param edgesKept share of the effect
 * @param measured all edges between members, and to the logits, the largest effect first
 * @param places at which positions the members' outputs count
 */
public record Circuit(
    List<Part> members,
    double value,
    double kept,
    List<Edge> edges,
    double edgesValue,
    double edgesKept,
    List<Edge> measured,
    List<Place> places) {

  /**
   * That one part reads another.
   *
   * @param to the reader; empty for the logits
   * @param via by what it reads
   */
  public record Link(Part from, Optional<Part> to, Via via) {
    public Link {
      boolean fits =
          to.map(
                  part ->
                      part.isMlp() == (via == Via.MLP) && via != Via.LOGIT && from.isReadBy(part))
              .orElse(via == Via.LOGIT);
      if (!fits) {
        throw new IllegalArgumentException(
            "%s can't read %s by %s"
                .formatted(to.map(Part::label).orElse("the logits"), from.label(), via.label()));
      }
    }
  }

  /**
   * What one part reads from another.
   *
   * @param effect of path patching: the replaced output is read by this link alone
   */
  public record Edge(Link link, double effect) {
    public Edge {
      Trace.requireFinite(effect);
    }

    /** Who is read. */
    public Part from() {
      return link.from;
    }

    /** The reader; empty for the logits. */
    public Optional<Part> to() {
      return link.to;
    }

    /** By what it reads. */
    public Via via() {
      return link.via;
    }
  }

  /**
   * Where a part's output counts.
   *
   * @param position of a token, from 0
   * @param effect of its replacement at this position alone
   * @param key the position that the head reads most from here; of an MLP, this one
   * @param weight of its attention; 1 of an MLP
   */
  public record Place(Part part, int position, double effect, int key, double weight) {
    public Place {
      if (position < 0 || key < 0 || key > position) {
        throw new IllegalArgumentException("position %d reads %d".formatted(position, key));
      }
      Trace.requireFinite(effect, weight);
    }
  }

  public Circuit {
    members = List.copyOf(members);
    edges = List.copyOf(edges);
    measured = List.copyOf(measured);
    places = List.copyOf(places);
    Trace.requireFinite(value, kept, edgesValue, edgesKept);
    for (Edge edge : measured) {
      if (!members.contains(edge.from()) || !members.contains(edge.to().orElse(edge.from()))) {
        throw new IllegalArgumentException("an edge of a part that is no member: " + edge);
      }
    }
    if (!measured.containsAll(edges)) {
      throw new IllegalArgumentException("an edge that was not measured");
    }
    for (Place place : places) {
      if (!members.contains(place.part())) {
        throw new IllegalArgumentException("a place of a part that is no member: " + place);
      }
    }
  }
}

package dev.loupe.attention;

import dev.loupe.attention.HeadStatistics.Edge;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * The few heaviest of many edges; of equal ones those that came first. Weights of 0 are no edges.
 */
final class TopEdges {
  static final Comparator<Edge> ORDER =
      Comparator.comparingDouble(Edge::weight)
          .reversed()
          .thenComparingInt(Edge::query)
          .thenComparingInt(Edge::key);

  private final List<Edge> edges = new ArrayList<>(); // heaviest first
  private final int most;

  TopEdges(int most) {
    this.most = most;
  }

  /** What an edge must weigh more than to get in. */
  float floor() {
    return edges.size() < most ? 0 : edges.getLast().weight();
  }

  void offer(int query, int key, float weight) {
    if (!(weight > floor())) {
      return;
    }
    int place = edges.size();
    while (place > 0 && edges.get(place - 1).weight() < weight) {
      place--;
    }
    edges.add(place, new Edge(query, key, weight));
    if (edges.size() > most) {
      edges.removeLast();
    }
  }

  /** Those of {@code other}, whose token 0 is token {@code at} here. */
  void offerAll(TopEdges other, int at) {
    for (Edge edge : other.edges) {
      offer(at + edge.query(), at + edge.key(), edge.weight());
    }
  }

  List<Edge> edges() {
    return List.copyOf(edges);
  }

  /** The heaviest of both. */
  List<Edge> with(TopEdges other) {
    List<Edge> both = new ArrayList<>(edges);
    both.addAll(other.edges);
    both.sort(ORDER);
    return List.copyOf(both.subList(0, Math.min(most, both.size())));
  }
}

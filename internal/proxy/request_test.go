package proxy

import "testing"

func TestMatchAcrossTwoPieces(t *testing.T) {
	t.Parallel()
	p, err := Start("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	for tail, piece := range map[string]string{"": "a COMMIT b", "a COM": "MIT", "COMMI": "T", "x": "COMMIT"} {
		p.LoseReply("COMMIT", 0, false)
		if p.request([]byte(tail), []byte(piece)) == nil {
			t.Errorf("%q and %q: not seen", tail, piece)
		}
	}
	p.LoseReply("COMMIT", 0, false)
	for tail, piece := range map[string]string{"COMMIT": "", "aCOMMIT": "x", "COM": "", "MIT": "COM"} { // seen before, or not there
		if p.request([]byte(tail), []byte(piece)) != nil {
			t.Errorf("%q and %q: seen", tail, piece)
		}
	}
}
